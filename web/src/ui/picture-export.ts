/** Exports pictures with title and parameters as PNG with double resolution or as SVG. */

import { download } from "../lib/export";
import { token } from "../lib/theme";
import { wrapText, type Picture } from "./picture";
import { SvgContext } from "./svg";

export type Format = "png" | "svg";

/** PNG pixels per page pixel. */
const SCALE = 2;
/** Margin, and height of the text lines, in pixels. */
const MARGIN = 16;
const [TITLE, LINE] = [24, 17];

interface Fonts {
  title: string;
  line: string;
}

function getFonts(): Fonts {
  const family = getComputedStyle(document.body).fontFamily;
  return { title: `600 16px ${family}`, line: `12px ${family}` };
}

const createContext = () => document.createElement("canvas").getContext("2d") as CanvasRenderingContext2D;

function measureText(text: string, font: string): number {
  const context = createContext();
  context.font = font;
  return context.measureText(text).width;
}

interface PictureSheet {
  width: number;
  height: number;
  draw: (context: CanvasRenderingContext2D) => void;
}

/** Return the picture on the page's background, below its title and lines. */
function createSheet({ title, lines, width, height, draw }: Picture): PictureSheet {
  const font = getFonts();
  const rows = lines.flatMap((each) => wrapText(each, width, (text) => measureText(text, font.line)));
  const head = TITLE + LINE * rows.length + 8;
  return {
    width: width + 2 * MARGIN,
    height: height + head + 2 * MARGIN,
    draw: (context) => {
      context.fillStyle = token("bg");
      context.fillRect(0, 0, width + 2 * MARGIN, height + head + 2 * MARGIN);
      context.fillStyle = token("ink");
      context.font = font.title;
      context.fillText(title, MARGIN, MARGIN + 16);
      context.fillStyle = token("ink-soft");
      context.font = font.line;
      for (const [index, text] of rows.entries())
        context.fillText(text, MARGIN, MARGIN + TITLE + LINE * (index + 1) - 4);
      context.save();
      context.translate(MARGIN, MARGIN + head);
      draw(context, width, height);
      context.restore();
    },
  };
}

function exportPng(sheet: PictureSheet, scale: number): Promise<Blob> {
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: Math.round(sheet.width * scale), height: Math.round(sheet.height * scale) });
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser does not support a canvas of this size");
  context.scale(scale, scale);
  sheet.draw(context);
  return new Promise((done, failed) =>
    canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("the picture is too large for this browser")))),
  );
}

function exportSvg(sheet: PictureSheet): Blob {
  const context = new SvgContext(measureText);
  sheet.draw(context as unknown as CanvasRenderingContext2D);
  const size = `width="${sheet.width}" height="${sheet.height}" viewBox="0 0 ${sheet.width} ${sheet.height}"`;
  return new Blob([`<svg xmlns="http://www.w3.org/2000/svg" ${size}>\n${context.content()}\n</svg>\n`], {
    type: "image/svg+xml",
  });
}

/** Return the picture as a file. Rejects if the browser cannot create an image of this size. */
export async function exportPicture(picture: Picture, format: Format, scale = SCALE): Promise<Blob> {
  const sheet = createSheet(picture);
  return format === "png" ? exportPng(sheet, scale) : exportSvg(sheet);
}

/** Save the picture as NAME.png or NAME.svg. */
export async function savePicture(name: string, picture: Picture, format: Format): Promise<void> {
  download(`${name}.${format}`, await exportPicture(picture, format));
}
