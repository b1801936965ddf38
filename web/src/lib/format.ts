/** Numbers as people read them. Values beyond 2^53 come as decimal strings and stay exact. */

/** Thin, and never broken at the end of a line. */
export const THIN = "\u202f";

type Countable = number | bigint | string;

/** Digits in groups of three: 1 234 567. What is no integer is rounded. */
export function integer(value: Countable | null | undefined): string {
  if (value === null || value === undefined || value === "") return "";
  const text = typeof value === "number" ? decimal(value) : String(value);
  return text.replace(/\B(?=(\d{3})+$)/g, THIN);
}

function decimal(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  return BigInt(Math.round(value)).toString();
}

/** How many of a thing there are, in full digits: 1 step, 1 234 steps. */
export function counted(count: Countable, what: string, many = `${what}s`): string {
  return `${integer(count)} ${Number(count) === 1 ? what : many}`;
}

const STEPS = ["", "k", "M", "G", "T", "P", "E"];

/** Three significant digits and a letter: 12.3 M. Beyond 10^21: 1.23e30. */
export function compact(value: Countable | null | undefined): string {
  if (value === null || value === undefined || value === "") return "";
  const number = Number(value);
  if (!Number.isFinite(number)) return typeof value === "number" ? String(value) : exponent(String(value));
  const size = Math.abs(number);
  if (size >= 1e21) return number.toExponential(2).replace("e+", "e");
  if (size < 1000) return short(number);
  let step = Math.floor(Math.log10(size) / 3);
  if (Number((size / 1000 ** step).toPrecision(3)) >= 1000) step += 1;
  const letter = STEPS[Math.min(step, STEPS.length - 1)];
  return `${short(number / 1000 ** Math.min(step, STEPS.length - 1))}${THIN}${letter}`;
}

/** How many of a thing there are: 1 unit, 12.3 M units. */
export function amount(value: Countable, what: string): string {
  return `${compact(value)}${compact(value).includes(THIN) ? " " : THIN}${what}${Number(value) === 1 ? "" : "s"}`;
}

/** A string of digits too long for a double. */
function exponent(digits: string): string {
  const body = digits.replace("-", "");
  return `${digits.startsWith("-") ? "-" : ""}${body[0]}.${body.slice(1, 3)}e${body.length - 1}`;
}

/** Three significant digits without an exponent, and no zeros that say nothing. */
function short(number: number): string {
  if (Number.isInteger(number)) return String(number);
  return String(Number(number.toPrecision(3)));
}

/** 0..1 as per cent. Never 100 % before all is done, and what is little is not nothing: <1 %. */
export function percent(ratio: number | null | undefined, digits = 0): string {
  if (ratio === null || ratio === undefined || Number.isNaN(ratio)) return "";
  const least = 10 ** -digits;
  const value = ratio * 100;
  if (value > 0 && value < least) return `<${least}${THIN}%`;
  const shown = ratio < 1 ? Math.min(value, 100 - least) : value;
  return `${shown.toFixed(digits)}${THIN}%`;
}

/** A duration: 350 µs, 41.2 ms, 1.4 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (!Number.isFinite(value)) return "never";
  if (value <= 0) return `0${THIN}s`;
  if (value < 0.9995e-3) return `${short(Number((value * 1e6).toPrecision(3)))}${THIN}µs`;
  if (value < 0.9995) return `${short(Number((value * 1e3).toPrecision(3)))}${THIN}ms`;
  if (value < 9.95) return `${value.toFixed(1)}${THIN}s`;
  if (value < 59.5) return `${Math.round(value)}${THIN}s`;
  return long(Math.round(value));
}

/** Time that passes, in whole seconds: 5 s, 3 min 20 s. */
export function passed(value: number): string {
  const whole = Math.max(0, Math.round(value));
  return whole < 60 ? `${whole}${THIN}s` : long(whole);
}

function long(whole: number): string {
  const units: [number, string][] = [
    [86_400, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  const first = units.findIndex(([size]) => whole >= size);
  const parts: string[] = [];
  let left = whole;
  for (const [size, name] of units.slice(first, first + 2)) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count) parts.push(`${count}${THIN}${name}`);
  }
  return parts.join(" ");
}

/** Binary steps: 1.5 GiB. */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "";
  const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let step = 0;
  let size = value;
  while (size >= 1023.5 && step < names.length - 1) {
    size /= 1024;
    step += 1;
  }
  return `${step ? short(Number(size.toPrecision(3))) : Math.round(size)}${THIN}${names[step]}`;
}

/** Per second: 12.3 M/s. */
export function rate(value: number | null | undefined, unit = ""): string {
  if (value === null || value === undefined) return "";
  const text = compact(value);
  return unit ? `${text}${THIN}${unit}/s` : `${text}/s`;
}

/** Time since a moment as the API writes it: 12 s ago. */
export function ago(moment: string | null | undefined, now = Date.now()): string {
  if (!moment) return "";
  const passed = (now - Date.parse(moment)) / 1000;
  return passed < 1 ? "now" : `${seconds(passed)} ago`;
}

/** The hour of a moment, in the reader's time zone: 14:03:27. */
export function clock(moment: string | number): string {
  const date = new Date(moment);
  const pad = (value: number) => String(value).padStart(2, "0");
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}
