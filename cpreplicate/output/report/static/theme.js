// The theme: that of the system, until the reader chooses the other one. A page is printed light.
"use strict";

const theme = (() => {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const changed = [];
  let chosen = null;
  let isPrinting = false;

  function isDark() {
    return !isPrinting && (chosen === null ? system.matches : chosen === "dark");
  }

  function apply() {
    document.documentElement.dataset.theme = isDark() ? "dark" : "light";
    button.textContent = isDark() ? "Light theme" : "Dark theme";
    for (const call of changed) call();
  }

  function print(is) {
    isPrinting = is;
    apply();
  }

  button.addEventListener("click", () => {
    chosen = isDark() ? "light" : "dark";
    apply();
  });
  system.addEventListener("change", apply);
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  apply();

  return {
    onChange: (call) => changed.push(call),
    color: (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(),
  };
})();

const format = (() => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const numbers = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });

  function bytes(number) {
    let unit = 0;
    let value = number;
    while (value >= 1024 && unit < units.length - 1) {
      value /= 1024;
      unit += 1;
    }
    return unit === 0 ? `${numbers.format(number)} B` : `${value.toFixed(1)} ${units[unit]}`;
  }

  function seconds(number) {
    const whole = Math.round(number);
    const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
    const two = (part) => String(part).padStart(2, "0");
    if (hours) return `${numbers.format(hours)} h ${two(minutes)} min`;
    return minutes ? `${minutes} min ${two(whole % 60)} s` : `${whole} s`;
  }

  return (value, unit) => {
    if (value === null || value === "") return "";
    if (unit === "bytes") return bytes(value);
    if (unit === "seconds") return seconds(value);
    return unit === "count" ? numbers.format(value) : value;
  };
})();

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}
