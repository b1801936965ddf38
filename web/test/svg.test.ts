import { expect, test } from "vitest";
import { wrapText, fileName } from "../src/ui/picture";
import { SvgContext } from "../src/ui/svg";

const width = (text: string) => text.length * 10;
const context = () => new SvgContext(width);

test("rectangles, lines and dashes are elements of their own", () => {
  const at = context();
  at.fillStyle = "red";
  at.fillRect(1, 2, 3.001, -4);
  at.setLineDash([3, 2]);
  at.strokeStyle = "rgb(0 1 2)";
  at.beginPath();
  at.moveTo(0, 0);
  at.lineTo(10.456, 5);
  at.stroke();
  expect(at.content().split("\n")).toEqual([
    '<rect x="1" y="-2" width="3" height="4" fill="red"/>',
    '<path d="M0 0L10.46 5" fill="none" stroke="rgb(0 1 2)" stroke-width="1" stroke-dasharray="3 2"/>',
  ]);
});

test("save and restore give back pen, place and clip", () => {
  const at = context();
  at.save();
  at.translate(10, 20);
  at.scale(2, 2);
  at.globalAlpha = 0.5;
  at.beginPath();
  at.rect(0, 0, 5, 5);
  at.clip();
  at.fillRect(1, 1, 1, 1);
  at.restore();
  at.fillRect(1, 1, 1, 1);
  const [clip, inside, outside] = at.content().split("\n");
  expect(clip).toBe('<clipPath id="clip-1"><path d="M0 0h5v5h-5Z" transform="matrix(2 0 0 2 10 20)"/></clipPath>');
  expect(inside).toBe(
    '<g clip-path="url(#clip-1)"><rect x="1" y="1" width="1" height="1" fill="#000" fill-opacity="0.5" ' +
      'transform="matrix(2 0 0 2 10 20)"/></g>',
  );
  expect(outside).toBe('<rect x="1" y="1" width="1" height="1" fill="#000"/>');
});

test("a text has its size, weight, side and baseline, and is no markup", () => {
  const at = context();
  at.font = '600 16px system-ui, "Segoe UI"';
  at.textAlign = "right";
  at.textBaseline = "middle";
  at.fillText('a < b & "c"', 5, 100);
  expect(at.content()).toBe(
    '<text x="5" y="105.6" font-size="16" font-family="system-ui, &quot;Segoe UI&quot;" font-weight="600" ' +
      'text-anchor="end" fill="#000">a &lt; b &amp; &quot;c&quot;</text>',
  );
});

test("a whole circle is two halves, and an arc goes the way it was told", () => {
  const at = context();
  at.beginPath();
  at.arc(0, 0, 5, 0, 2 * Math.PI);
  at.fill();
  expect(at.content()).toContain('d="M5 0A5 5 0 0 1 -5 0A5 5 0 0 1 5 0"');
  const back = context();
  back.beginPath();
  back.arc(0, 0, 5, 0, Math.PI / 2, true);
  back.stroke();
  expect(back.content()).toContain('d="M5 0A5 5 0 1 0 0 5"');
});

test("what it does not know throws", () => {
  expect(() => (context() as unknown as CanvasRenderingContext2D).putImageData({} as ImageData, 0, 0)).toThrow();
});

test("lines are broken at words, and a long word stands alone", () => {
  expect(wrapText("one two three incomprehensibilities four", 90, width)).toEqual([
    "one two",
    "three",
    "incomprehensibilities",
    "four",
  ]);
});

test("a title is a file's name without what no file system takes", () => {
  expect(fileName("Makespan over replicas: 50 %/µs")).toBe("makespan-over-replicas-50-µs");
});
