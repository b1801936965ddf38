/** Formats numbers for people. Values above 2^53 are decimal strings and stay exact. */

/** Narrow no-break space. */
export const NARROW_SPACE = "\u202f";

type Countable = number | bigint | string;

/** Group digits by three, such as 1 234 567. Other numbers are rounded to integers. */
export function formatInteger(value: Countable | null | undefined): string {
  if (value === null || value === undefined || value === "") return "";
  const text = typeof value === "number" ? formatDecimal(value) : String(value);
  return text.replace(/\B(?=(\d{3})+$)/g, NARROW_SPACE);
}

function formatDecimal(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  return BigInt(Math.round(value)).toString();
}

/** Format a count with its noun in full digits, such as 1 step or 1 234 steps. */
export function formatCount(count: Countable, noun: string, plural = `${noun}s`): string {
  return `${formatInteger(count)} ${Number(count) === 1 ? noun : plural}`;
}

const STEPS = ["", "k", "M", "G", "T", "P", "E"];

/** Format with three significant digits and a letter, such as 12.3 M; above 10^21, as 1.23e30. */
export function formatCompact(value: Countable | null | undefined): string {
  if (value === null || value === undefined || value === "") return "";
  const number = Number(value);
  if (!Number.isFinite(number)) return typeof value === "number" ? String(value) : formatExponent(String(value));
  const size = Math.abs(number);
  if (size >= 1e21) return number.toExponential(2).replace("e+", "e");
  if (size < 1000) return formatSignificant(number);
  let step = Math.floor(Math.log10(size) / 3);
  if (Number((size / 1000 ** step).toPrecision(3)) >= 1000) step += 1;
  const letter = STEPS[Math.min(step, STEPS.length - 1)];
  return `${formatSignificant(number / 1000 ** Math.min(step, STEPS.length - 1))}${NARROW_SPACE}${letter}`;
}

/** Format a rounded count with its noun, such as 1 unit or 12.3 M units. */
export function formatAmount(value: Countable, noun: string): string {
  const text = formatCompact(value);
  return `${text}${text.includes(NARROW_SPACE) ? " " : NARROW_SPACE}${noun}${Number(value) === 1 ? "" : "s"}`;
}

/** Format a string of digits that exceeds a double in exponent notation. */
function formatExponent(digits: string): string {
  const body = digits.replace("-", "");
  return `${digits.startsWith("-") ? "-" : ""}${body[0]}.${body.slice(1, 3)}e${body.length - 1}`;
}

/** Format with three significant digits, without an exponent or trailing zeros. */
function formatSignificant(number: number): string {
  if (Number.isInteger(number)) return String(number);
  return String(Number(number.toPrecision(3)));
}

/** Format a fraction as a percentage. Values below 1 never show 100 %, and small positive values show <1 %. */
export function formatPercent(ratio: number | null | undefined, digits = 0): string {
  if (ratio === null || ratio === undefined || Number.isNaN(ratio)) return "";
  const min = 10 ** -digits;
  const value = ratio * 100;
  if (value > 0 && value < min) return `<${min}${NARROW_SPACE}%`;
  const displayed = ratio < 1 ? Math.min(value, 100 - min) : value;
  return `${displayed.toFixed(digits)}${NARROW_SPACE}%`;
}

/** Format a duration, such as 350 µs, 41.2 ms, 1.4 s, 3 min 20 s, 2 h 5 min or 3 d 4 h. */
export function formatSeconds(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (!Number.isFinite(value)) return "never";
  if (value <= 0) return `0${NARROW_SPACE}s`;
  if (value < 0.9995e-3) return `${formatSignificant(Number((value * 1e6).toPrecision(3)))}${NARROW_SPACE}µs`;
  if (value < 0.9995) return `${formatSignificant(Number((value * 1e3).toPrecision(3)))}${NARROW_SPACE}ms`;
  if (value < 9.95) return `${value.toFixed(1)}${NARROW_SPACE}s`;
  if (value < 59.5) return `${Math.round(value)}${NARROW_SPACE}s`;
  return formatLongDuration(Math.round(value));
}

/** Format elapsed time in whole seconds, such as 5 s or 3 min 20 s. */
export function formatElapsed(value: number): string {
  const whole = Math.max(0, Math.round(value));
  return whole < 60 ? `${whole}${NARROW_SPACE}s` : formatLongDuration(whole);
}

function formatLongDuration(whole: number): string {
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
    if (count) parts.push(`${count}${NARROW_SPACE}${name}`);
  }
  return parts.join(" ");
}

/** Format bytes with binary prefixes, such as 1.5 GiB. */
export function formatBytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "";
  const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let step = 0;
  let size = value;
  while (size >= 1023.5 && step < names.length - 1) {
    size /= 1024;
    step += 1;
  }
  return `${step ? formatSignificant(Number(size.toPrecision(3))) : Math.round(size)}${NARROW_SPACE}${names[step]}`;
}

/** Format a rate, such as 12.3 M/s. */
export function formatRate(value: number | null | undefined, unit = ""): string {
  if (value === null || value === undefined) return "";
  const text = formatCompact(value);
  return unit ? `${text}${NARROW_SPACE}${unit}/s` : `${text}/s`;
}

/** Format the time since an API timestamp, such as 12 s ago. */
export function formatAge(moment: string | null | undefined, now = Date.now()): string {
  if (!moment) return "";
  const passed = (now - Date.parse(moment)) / 1000;
  return passed < 1 ? "now" : `${formatSeconds(passed)} ago`;
}

/** Format the time of day in the reader's time zone, such as 14:03:27. */
export function formatClock(moment: string | number): string {
  const date = new Date(moment);
  const pad = (value: number) => String(value).padStart(2, "0");
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}
