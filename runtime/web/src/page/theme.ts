/** Light, dark, or as the system has it; remembered. */

const KEY = "tfexport-theme";
const THEMES = [
  { name: "system", sign: "◐", label: "Colours: as the system" },
  { name: "light", sign: "☀", label: "Colours: light" },
  { name: "dark", sign: "☾", label: "Colours: dark" },
] as const;

export function setUpTheme(button: HTMLButtonElement): void {
  let place = Math.max(0, THEMES.findIndex(({ name }) => name === localStorage.getItem(KEY)));
  const show = () => {
    const theme = THEMES[place]!;
    document.documentElement.dataset["theme"] = theme.name;
    button.textContent = theme.sign;
    button.setAttribute("aria-label", theme.label);
    localStorage.setItem(KEY, theme.name);
  };
  button.addEventListener("click", () => {
    place = (place + 1) % THEMES.length;
    show();
  });
  show();
}
