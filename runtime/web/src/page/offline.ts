/** Keeps the page for visits without a network. The bundle is kept by its loader. */

export async function keepForOffline(status: HTMLElement): Promise<void> {
  if (!("serviceWorker" in navigator)) {
    status.textContent = "Needs the network: this page came without HTTPS.";
    return;
  }
  try {
    await navigator.serviceWorker.register("service_worker.js");
    await navigator.serviceWorker.ready;
    await navigator.storage?.persist?.(); // else a browser may clear it when the disk is full
    status.textContent = "Works offline";
    status.dataset["ready"] = "true";
  } catch (error) {
    status.textContent = `Needs the network: ${error instanceof Error ? error.message : String(error)}`;
  }
}
