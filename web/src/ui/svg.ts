/**
 * A drawing context that writes SVG: the subset of CanvasRenderingContext2D that these pages use. Unsupported calls
 * throw, so that no incomplete picture is saved. Pure except for text widths.
 */

type Matrix = readonly [number, number, number, number, number, number];

interface Pen {
  fillStyle: string;
  strokeStyle: string;
  lineWidth: number;
  lineCap: string;
  lineJoin: string;
  globalAlpha: number;
  font: string;
  textAlign: string;
  textBaseline: string;
  dash: readonly number[];
  matrix: Matrix;
  /** ID of the current clip path. */
  clip: string;
}

const ANCHORS: Record<string, string> = { center: "middle", right: "end", end: "end" };
/** Vertical offset of text baselines as a fraction of the font size. */
const SHIFTS: Record<string, number> = { middle: 0.35, top: 0.8, hanging: 0.8, bottom: -0.2, ideographic: -0.2 };

function format(value: number): string {
  return String(Math.round(value * 100) / 100);
}

function escapeXml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}

export class SvgContext implements Omit<Pen, "dash" | "matrix" | "clip"> {
  fillStyle = "#000";
  strokeStyle = "#000";
  lineWidth = 1;
  lineCap = "butt";
  lineJoin = "miter";
  globalAlpha = 1;
  font = "12px sans-serif";
  textAlign = "start";
  textBaseline = "alphabetic";
  imageSmoothingEnabled = true;
  private dash: readonly number[] = [];
  private matrix: Matrix = [1, 0, 0, 1, 0, 0];
  private clipped = "";
  private readonly parts: string[] = [];
  private readonly pens: Pen[] = [];
  private path = "";
  private clips = 0;

  /** `measure` returns the width of a text in a font in pixels. */
  constructor(private readonly measure: (text: string, font: string) => number) {}

  /** Return the drawn elements. */
  content(): string {
    return this.parts.join("\n");
  }

  // -- the pen --------------------------------------------------------------------------------------------------------

  save(): void {
    const { fillStyle, strokeStyle, lineWidth, lineCap, lineJoin, globalAlpha, font, textAlign, textBaseline } = this;
    const pen = { fillStyle, strokeStyle, lineWidth, lineCap, lineJoin, globalAlpha, font, textAlign, textBaseline };
    this.pens.push({ ...pen, dash: this.dash, matrix: this.matrix, clip: this.clipped });
  }

  restore(): void {
    const pen = this.pens.pop();
    if (!pen) return;
    const { dash, matrix, clip, ...rest } = pen;
    Object.assign(this, rest);
    [this.dash, this.matrix, this.clipped] = [dash, matrix, clip];
  }

  setLineDash(dash: readonly number[]): void {
    this.dash = [...dash];
  }

  translate(x: number, y: number): void {
    this.transform(1, 0, 0, 1, x, y);
  }

  scale(x: number, y: number): void {
    this.transform(x, 0, 0, y, 0, 0);
  }

  rotate(angle: number): void {
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    this.transform(cos, sin, -sin, cos, 0, 0);
  }

  transform(a: number, b: number, c: number, d: number, e: number, f: number): void {
    const [a0, b0, c0, d0, e0, f0] = this.matrix;
    this.matrix = [
      a0 * a + c0 * b,
      b0 * a + d0 * b,
      a0 * c + c0 * d,
      b0 * c + d0 * d,
      a0 * e + c0 * f + e0,
      b0 * e + d0 * f + f0,
    ];
  }

  // -- paths ----------------------------------------------------------------------------------------------------------

  beginPath(): void {
    this.path = "";
  }

  closePath(): void {
    this.path += "Z";
  }

  moveTo(x: number, y: number): void {
    this.path += `M${format(x)} ${format(y)}`;
  }

  lineTo(x: number, y: number): void {
    this.path += `${this.path ? "L" : "M"}${format(x)} ${format(y)}`;
  }

  quadraticCurveTo(x1: number, y1: number, x: number, y: number): void {
    this.path += `Q${[x1, y1, x, y].map(format).join(" ")}`;
  }

  bezierCurveTo(x1: number, y1: number, x2: number, y2: number, x: number, y: number): void {
    this.path += `C${[x1, y1, x2, y2, x, y].map(format).join(" ")}`;
  }

  rect(x: number, y: number, width: number, height: number): void {
    this.path += `M${format(x)} ${format(y)}h${format(width)}v${format(height)}h${format(-width)}Z`;
  }

  arc(x: number, y: number, radius: number, from: number, to: number, anticlockwise = false): void {
    const whole = Math.abs(to - from) >= 2 * Math.PI - 1e-9;
    const pointAt = (angle: number) => [x + radius * Math.cos(angle), y + radius * Math.sin(angle)] as const;
    const along = (until: number, large: boolean) => {
      const [toX, toY] = pointAt(until);
      this.path += `A${[radius, radius].map(format).join(" ")} 0 ${large ? 1 : 0} ${anticlockwise ? 0 : 1} `;
      this.path += `${format(toX)} ${format(toY)}`;
    };
    this.lineTo(...pointAt(from));
    const turn = anticlockwise ? -1 : 1;
    if (whole) {
      along(from + turn * Math.PI, false);
      along(from + turn * 2 * Math.PI, false);
    } else {
      const sweep = (((turn * (to - from)) % (2 * Math.PI)) + 2 * Math.PI) % (2 * Math.PI);
      along(to, sweep > Math.PI);
    }
  }

  fill(rule?: string): void {
    this.add("path", `d="${this.path}"${rule === "evenodd" ? ' fill-rule="evenodd"' : ""} ${this.filled()}`);
  }

  stroke(): void {
    this.add("path", `d="${this.path}" ${this.stroked()}`);
  }

  clip(): void {
    this.clips += 1;
    const id = `clip-${this.clips}`;
    const within = this.clipped ? ` clip-path="url(#${this.clipped})"` : "";
    const shape = `<path d="${this.path}" transform="matrix(${this.matrix.map(format).join(" ")})"/>`;
    this.parts.push(`<clipPath id="${id}"${within}>${shape}</clipPath>`);
    this.clipped = id;
  }

  // -- shapes ---------------------------------------------------------------------------------------------------------

  clearRect(): void {
    // The sheet already has a background, and nothing is drawn twice.
  }

  fillRect(x: number, y: number, width: number, height: number): void {
    this.add("rect", `${rectPath(x, y, width, height)} ${this.filled()}`);
  }

  strokeRect(x: number, y: number, width: number, height: number): void {
    // SVG does not draw rectangles without width or height, so draw them as lines.
    const shape = `d="M${format(x)} ${format(y)}h${format(width)}v${format(height)}h${format(-width)}Z"`;
    this.add("path", `${shape} ${this.stroked()}`);
  }

  fillText(text: string, x: number, y: number): void {
    const size = Number(/(\d+(?:\.\d+)?)px/.exec(this.font)?.[1] ?? 12);
    const [, style = "", family = "sans-serif"] = /^(.*?)[\d.]+px(?:\/\S+)?\s+(.*)$/.exec(this.font) ?? [];
    const weight = /\b(bold|[1-9]00)\b/.exec(style)?.[1];
    const bold = weight ? ` font-weight="${weight}"` : "";
    const anchor = ANCHORS[this.textAlign];
    const shift = (SHIFTS[this.textBaseline] ?? 0) * size;
    this.add(
      "text",
      `x="${format(x)}" y="${format(y + shift)}" font-size="${format(size)}" ` +
        `font-family="${escapeXml(family)}"${bold}` +
        `${anchor ? ` text-anchor="${anchor}"` : ""} ${this.filled()}`,
      escapeXml(text),
    );
  }

  measureText(text: string): { width: number } {
    return { width: this.measure(text, this.font) };
  }

  /** Embed pixels as an image. */
  drawImage(image: HTMLCanvasElement, x: number, y: number, width = image.width, height = image.height): void {
    const smooth = this.imageSmoothingEnabled ? "" : ' style="image-rendering:pixelated"';
    const rectAttributes = rectPath(x, y, width, height);
    this.add("image", `${rectAttributes} preserveAspectRatio="none" href="${image.toDataURL("image/png")}"${smooth}`);
  }

  // -- elements -------------------------------------------------------------------------------------------------------

  private filled(): string {
    return `fill="${escapeXml(this.fillStyle)}"${this.globalAlpha < 1 ? ` fill-opacity="${this.globalAlpha}"` : ""}`;
  }

  private stroked(): string {
    const more = [
      this.dash.length ? `stroke-dasharray="${this.dash.map(format).join(" ")}"` : "",
      this.lineCap === "butt" ? "" : `stroke-linecap="${this.lineCap}"`,
      this.lineJoin === "miter" ? "" : `stroke-linejoin="${this.lineJoin}"`,
      this.globalAlpha < 1 ? `stroke-opacity="${this.globalAlpha}"` : "",
    ].filter(Boolean);
    return [
      `fill="none" stroke="${escapeXml(this.strokeStyle)}" stroke-width="${format(this.lineWidth)}"`,
      ...more,
    ].join(" ");
  }

  private add(name: string, attributes: string, inner = ""): void {
    const turned = this.matrix.every((value, index) => value === [1, 0, 0, 1, 0, 0][index]);
    const matrix = turned ? "" : ` transform="matrix(${this.matrix.map(format).join(" ")})"`;
    // The clip path is in units of the sheet, so it encloses transformed elements.
    const open = this.clipped ? `<g clip-path="url(#${this.clipped})">` : "";
    const shape = `<${name} ${attributes}${matrix}${inner ? `>${inner}</${name}>` : "/>"}`;
    this.parts.push(`${open}${shape}${open && "</g>"}`);
  }
}

function rectPath(x: number, y: number, width: number, height: number): string {
  const [left, wide] = width < 0 ? [x + width, -width] : [x, width];
  const [top, tall] = height < 0 ? [y + height, -height] : [y, height];
  return `x="${format(left)}" y="${format(top)}" width="${format(wide)}" height="${format(tall)}"`;
}
