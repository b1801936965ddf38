/** Number expressions, such as 10^6, 1e6, 2^89-1, 3^5*2^7+1 or (2^4+1)*7. Pure functions. */

/** Maximum number of decimal digits that the page and the kind accept. */
export const MAX_DIGITS = 20_000;
/** Maximum number of bits of a number with MAX_DIGITS digits. */
const MAX_BITS = Math.ceil(MAX_DIGITS * Math.log2(10));

export type ParsedNumber = { value: bigint; error?: undefined } | { value?: undefined; error: string };

/** Return the number of bits of a number, 0 for 0. */
export function bitLength(value: bigint): number {
  if (value < 0n) return bitLength(-value);
  if (value === 0n) return 0;
  const hex = value.toString(16);
  return 4 * hex.length - (Math.clz32(parseInt(hex[0] as string, 16)) - 28);
}

/** Return log2 of a positive number of any size, to about 12 digits. */
export function log2(value: bigint): number {
  const excess = Math.max(0, bitLength(value) - 64);
  return Math.log2(Number(value >> BigInt(excess))) + excess;
}

const SUPERSCRIPTS = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079";

/** Format a power with superscript digits, such as 2¹⁵. */
export function formatPower(base: number, exponent: number): string {
  const digits = [...String(Math.abs(exponent))].map((digit) => SUPERSCRIPTS[Number(digit)]);
  return `${base}${exponent < 0 ? "\u207b" : ""}${digits.join("")}`;
}

class ParseError extends Error {}

const TOO_LONG = `more than ${MAX_DIGITS.toLocaleString("en").replace(",", "\u202f")} digits`;

function checkSize(value: bigint): bigint {
  // a product of two bounded numbers is the largest possible value here
  if (value > 2n ** BigInt(MAX_BITS)) throw new ParseError(TOO_LONG);
  return value;
}

/** Parser for sums of products of powers; powers are right-associative. */
class ExpressionParser {
  private at = 0;

  constructor(private readonly text: string) {}

  all(): bigint {
    const total = this.sum();
    if (this.at < this.text.length)
      throw new ParseError(`"${this.text[this.at]}" at place ${this.at + 1} is not understood`);
    return total;
  }

  private took(sign: string): boolean {
    const there = this.text.startsWith(sign, this.at);
    if (there) this.at += sign.length;
    return there;
  }

  private sum(): bigint {
    let total = this.product();
    for (;;) {
      if (this.took("+")) total = checkSize(total + this.product());
      else if (this.took("-")) total -= this.product();
      else return total;
    }
  }

  private product(): bigint {
    let total = this.power();
    while (this.took("*") && !this.text.startsWith("*", this.at)) total = checkSize(total * this.power());
    return total;
  }

  private power(): bigint {
    const base = this.atom();
    if (!this.took("^") && !this.took("**")) return base;
    const exponent = this.power();
    if (exponent < 0n) throw new ParseError("a negative power is not a whole number");
    const bits = bitLength(base < 0n ? -base : base) - 1;
    if (bits > 0 && exponent * BigInt(bits) > BigInt(MAX_BITS)) throw new ParseError(TOO_LONG);
    return checkSize(base ** (bits > 0 ? exponent : exponent % 2n ? 1n : exponent ? 2n : 0n));
  }

  private atom(): bigint {
    if (this.took("(")) {
      const inner = this.sum();
      if (!this.took(")")) throw new ParseError("a bracket is not closed");
      return inner;
    }
    const [digits = ""] = /^\d+(?:e\d+)?/i.exec(this.text.slice(this.at)) ?? [];
    if (!digits)
      throw new ParseError(
        this.at < this.text.length
          ? `a number is missing before "${this.text[this.at]}"`
          : "a number is missing at the end",
      );
    this.at += digits.length;
    const [mantissa = "", zeros] = digits.toLowerCase().split("e");
    if (mantissa.length + Number(zeros ?? 0) > MAX_DIGITS + 1) throw new ParseError(TOO_LONG);
    return BigInt(mantissa) * 10n ** BigInt(zeros ?? 0);
  }
}

/** Parse an integer, or return the error. Spaces and _ between digits are ignored. */
export function parseNumber(text: string): ParsedNumber {
  const plain = text
    .replace(/[\s_\u202f]/g, "")
    .replaceAll("×", "*")
    .replaceAll("−", "-");
  if (!plain) return { error: "a number is missing" };
  try {
    return { value: new ExpressionParser(plain).all() };
  } catch (error) {
    if (error instanceof ParseError) return { error: error.message };
    throw error;
  }
}

/** Parse an integer >= 1 of up to MAX_DIGITS digits, or return the error. */
export function parsePositive(text: string): ParsedNumber {
  const parsed = parseNumber(text);
  if (parsed.value === undefined) return parsed;
  if (parsed.value < 1n) return { error: "must be at least 1" };
  return parsed.value >= 10n ** BigInt(MAX_DIGITS) ? { error: TOO_LONG } : parsed;
}
