/** Lets waiting events in between two steps, so that a cancel arrives and a page stays alive. */

const TURN_MS = 10; // a step shorter than this does not wait

/** Without a signal nobody can cancel, and no time is spent. */
export class Turn {
  private last = Date.now();

  constructor(private readonly signal: AbortSignal | undefined) {}

  /** Rejects with the reason of the signal once it is aborted. */
  async end(): Promise<void> {
    if (this.signal === undefined) return;
    this.throwIfAborted();
    if (Date.now() - this.last < TURN_MS) return;
    await nextTask();
    this.last = Date.now();
    this.throwIfAborted();
  }

  private throwIfAborted(): void {
    if (this.signal?.aborted) throw this.signal.reason ?? new Error("aborted"); // React Native has no reason
  }
}

/** A task of its own, without the 4 ms that browsers add to nested timers. */
function nextTask(): Promise<void> {
  return new Promise((resolve) => {
    if (typeof setImmediate === "function") {
      setImmediate(resolve);
    } else if (typeof MessageChannel === "function") {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => {
        channel.port1.close();
        resolve();
      };
      channel.port2.postMessage(null);
    } else {
      setTimeout(resolve, 0);
    }
  });
}
