/** The element with that id, which the page surely has. */
export function element(id: string): HTMLElement;
export function element<T extends HTMLElement>(id: string, kind: abstract new () => T): T;
export function element(id: string, kind: abstract new () => HTMLElement = HTMLElement): HTMLElement {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${kind.name} #${id}`);
  return found;
}
