/**
 * Convert program output for display: named colors, no other escape sequences and no hidden characters. Pure functions.
 */

export interface StyledText {
  text: string;
  /** Names of styles, such as `red` or `bold`. */
  style: string;
}

const COLORS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"] as const;
const STYLE_CODES: Readonly<Record<number, string>> = { 1: "bold", 2: "dim", 3: "italic", 4: "underline" };
/** Number of additional parameters of extended color sequences (palette or RGB). */
const EXTRA_PARAMETERS: Readonly<Record<number, number>> = { 5: 1, 2: 3 };

/**
 * Escape sequences: operating system commands such as titles and links, control sequences, and others. After an
 * unterminated sequence, the following text is still shown.
 */
const ESCAPES =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: matches the characters to remove
  /\u001b[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\)|(?:\u001b\[|\u009b)[0-?]*[ -/]*[@-~]?|\u001b[ -/]*[0-~]?/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: matches the characters to remove
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
/** Characters that change the text direction or are invisible, which could disguise a line. */
const HIDDEN = /[\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

function replaceControls(text: string): string {
  return text
    .replace(CONTROLS, (each) => {
      const code = each.charCodeAt(0);
      return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "\u2421" : "\ufffd";
    })
    .replace(HIDDEN, (each) => `<U+${each.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}>`);
}

/** Return the text without escape sequences, for searching. */
export function stripStyles(text: string): string {
  return replaceControls(text.replace(ESCAPES, ""));
}

interface TextStyle {
  color: string;
  styles: ReadonlySet<string>;
}

const PLAIN_STYLE: TextStyle = { color: "", styles: new Set() };

/** Split a line into pieces with one style each. Styles end at the end of the line. */
export function splitStyles(line: string): StyledText[] {
  const list: StyledText[] = [];
  let look = PLAIN_STYLE;
  let at = 0;
  const add = (text: string) => {
    const visible = replaceControls(text);
    if (visible) list.push({ text: visible, style: [look.color, ...look.styles].filter(Boolean).join(" ") });
  };
  for (const found of line.matchAll(ESCAPES)) {
    add(line.slice(at, found.index));
    at = found.index + found[0].length;
    const numbers = /\[([\d;]*)m$/.exec(found[0])?.[1];
    if (numbers !== undefined) look = applyCodes(look, numbers.split(";").map(Number));
  }
  add(line.slice(at));
  return list;
}

function applyCodes(look: TextStyle, numbers: readonly number[]): TextStyle {
  let next = look;
  for (let index = 0; index < numbers.length; index += 1) {
    const number = numbers[index] as number;
    // Ignore palette and RGB colors, because their contrast on this page is unknown.
    if (number === 38 || number === 48) index += 1 + (EXTRA_PARAMETERS[numbers[index + 1] ?? 0] ?? 0);
    else next = applyCode(next, number);
  }
  return next;
}

function applyCode(look: TextStyle, number: number): TextStyle {
  const mark = STYLE_CODES[number];
  if (number === 0) return PLAIN_STYLE;
  if (mark) return { ...look, styles: new Set([...look.styles, mark]) };
  if (number === 22) return removeStyles(look, ["bold", "dim"]);
  if (number === 23 || number === 24) return removeStyles(look, [number === 23 ? "italic" : "underline"]);
  if (number === 39) return { ...look, color: "" };
  const color = number >= 90 ? COLORS[number - 90] : COLORS[number - 30];
  return color ? { ...look, color } : look;
}

function removeStyles(look: TextStyle, marks: readonly string[]): TextStyle {
  return { ...look, styles: new Set([...look.styles].filter((each) => !marks.includes(each))) };
}

/** Split pieces so that every occurrence of `search` is a separate piece marked `hit`. */
export function markHits(list: readonly StyledText[], search: string): StyledText[] {
  if (!search) return [...list];
  const whole = list.map((piece) => piece.text).join("");
  const places = findHits(whole, search);
  if (!places.length) return [...list];
  const cuts = [...new Set(places.flatMap((index) => [index, index + search.length]))];
  const inside = (at: number) => places.some((index) => at >= index && at < index + search.length);
  let offset = 0;
  return list.flatMap(({ text, style }) => {
    const begin = offset;
    offset += text.length;
    const own = [begin, ...cuts.filter((cut) => cut > begin && cut < offset), offset];
    return own.slice(0, -1).map((from, index) => ({
      text: text.slice(from - begin, (own[index + 1] as number) - begin),
      style: inside(from) ? `${style} hit`.trim() : style,
    }));
  });
}

function findHits(text: string, search: string): number[] {
  const [low, sought] = [text.toLowerCase(), search.toLowerCase()];
  const places: number[] = [];
  for (let at = low.indexOf(sought); at >= 0; at = low.indexOf(sought, at + sought.length)) places.push(at);
  return places;
}
