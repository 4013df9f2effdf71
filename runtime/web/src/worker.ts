/** The worker's side: `new Worker(".../worker.js", { type: "module" })`. Its page uses remote.ts. */

import type { LoadProgress } from "./bundle.js";
import type { Answer, CallMessage, LoadRequest, TranslateRequest } from "./messages.js";
import { plainError } from "./messages.js";
import type { Progress } from "./options.js";
import { Translator } from "./translator.js";
import { webBackend } from "./web.js";

interface WorkerScope {
  postMessage(message: unknown): void;
  addEventListener(type: "message", listener: (event: MessageEvent<CallMessage>) => void): void;
}

interface Running {
  readonly abort: AbortController;
  readonly cancelled: Set<string>; // sentence and sample
}

const scope = globalThis as unknown as WorkerScope;
const running = new Map<number, Running>();
let translator: Translator | undefined;

scope.addEventListener("message", (event) => void receive(event.data));

async function receive({ id, call }: CallMessage): Promise<void> {
  const answer = (answer: Answer) => scope.postMessage({ id, answer });
  try {
    switch (call.kind) {
      case "load":
        translator = await load(call, answer);
        answer({ kind: "done", value: describe(translator) });
        break;
      case "translate":
        answer({ kind: "done", value: await translate(id, call, answer) });
        break;
      case "encoder_states":
        answer({ kind: "done", value: await loaded().encoderStates(call.texts) });
        break;
      case "abort":
        running.get(call.call)?.abort.abort();
        break;
      case "cancel":
        running.get(call.call)?.cancelled.add(`${call.sentence} ${call.sample}`);
        break;
      case "release":
        await translator?.release();
        answer({ kind: "done", value: null });
        break;
    }
  } catch (error) {
    answer({ kind: "failed", error: plainError(error) });
  }
}

async function load(call: LoadRequest, answer: (answer: Answer) => void): Promise<Translator> {
  const backend = await webBackend(call);
  const onProgress = throttled((progress) => answer({ kind: "loading", progress }));
  return Translator.load(call.source, backend, { verify: call.verify, onProgress });
}

function describe({ manifest, default_options, backend }: Translator) {
  return { manifest, default_options, backend };
}

function loaded(): Translator {
  if (translator === undefined) throw new Error("called before load");
  return translator;
}

async function translate(id: number, call: TranslateRequest, answer: (answer: Answer) => void) {
  const ready = loaded();
  const state: Running = { abort: new AbortController(), cancelled: new Set() };
  running.set(id, state);
  const watch = (progress: Progress) => {
    answer({ kind: "progress", progress });
    return state.cancelled.has(`${progress.sentence} ${progress.sample}`);
  };
  try {
    return await ready.translate(call.texts, {
      ...call.changes,
      prefixes: call.prefixes,
      attention: call.attention,
      signal: state.abort.signal,
      warn: (warning) => answer({ kind: "warning", warning }),
      callback: call.watched ? watch : undefined,
    });
  } finally {
    running.delete(id);
  }
}

/** At most one report in 50 ms, and always the last. */
function throttled(report: (progress: LoadProgress) => void): (progress: LoadProgress) => void {
  let last = 0;
  return (progress) => {
    const now = Date.now();
    if (now - last < 50 && progress.loaded < progress.total) return;
    last = now;
    report(progress);
  };
}
