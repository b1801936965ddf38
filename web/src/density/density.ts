/**
 * Draws delays with WebGL2: a grid of counts as one textured quad, or single numbers as points. The x coordinate of a
 * point follows from its index and an integer base, so numbers of any size work. Without WebGL2, `flat.ts` draws the
 * same pictures.
 */

import { CLASS_COLORS, MIXED_COLOR, scaleRange, VIRIDIS, type ColorScale } from "./color";
import { createFlatPainter } from "./flat";
import type { Grid } from "./grid";
import type { Painter, Points } from "./painter";

const MODES = { count: 0, value: 1, class: 2 } as const;

const vector = (values: readonly number[]) => `vec3(${values.map((value) => value.toFixed(4)).join(",")})`;

const PALETTE = [...CLASS_COLORS, MIXED_COLOR].map((each) => vector(each.map((channel) => channel / 255))).join(",");

/** GLSL function colorOf(value), used by both fragment shaders. */
const COLOR_SHADER = `
uniform int mode; uniform vec2 bounds; uniform vec2 part;
const vec3 classes[9] = vec3[9](${PALETTE});
vec3 viridis(float t) { return ${VIRIDIS.map(vector).reduceRight((rest, each) => `${each}+t*(${rest})`)}; }
vec3 colorOf(float value) {
  if (mode == 2) return classes[clamp(int(value + .5) - 1, 0, 8)];
  float share = mode == 0
    ? (log(1. + value) - log(1. + bounds.x)) / (log(1. + max(1., bounds.y)) - log(1. + bounds.x))
    : (value - bounds.x) / max(1., bounds.y - bounds.x);
  return clamp(viridis(mix(part.x, part.y, clamp(share, 0., 1.))), 0., 1.);
}`;
const SHADER_HEADER = "#version 300 es\nprecision highp float; precision highp int; precision highp sampler2D;\n";

const GRID_VERTEX = `${SHADER_HEADER}void main() {
  gl_Position = vec4(gl_VertexID == 1 ? 3. : -1., gl_VertexID == 2 ? 3. : -1., 0., 1.);
}`;
const GRID_FRAGMENT = `${SHADER_HEADER}${COLOR_SHADER}
uniform sampler2D cells; out vec4 shown;
void main() {
  float value = texelFetch(cells, ivec2(gl_FragCoord.xy), 0).r;
  if (value <= 0.) discard;
  shown = vec4(colorOf(value), 1.);
}`;
const POINT_VERTEX = `${SHADER_HEADER}
in uint delay; in uint value; flat out float held;
uniform vec2 x; uniform vec2 y; uniform vec2 size; uniform float across;
void main() {
  vec2 pixel = vec2(x.x + float(gl_VertexID) * x.y, (float(delay) + .5 - y.x) * y.y);
  gl_Position = vec4(2. * pixel / size - 1., 0., 1.);
  gl_PointSize = across;
  held = float(value);
}`;
const POINT_FRAGMENT = `${SHADER_HEADER}${COLOR_SHADER}
flat in float held; out vec4 shown;
void main() {
  if (length(gl_PointCoord - .5) > .5) discard;
  shown = vec4(colorOf(held), 1.);
}`;

function compileShader(gl: WebGL2RenderingContext, kind: number, source: string): WebGLShader {
  const shader = gl.createShader(kind) as WebGLShader;
  gl.shaderSource(shader, source);
  gl.compileShader(shader);
  if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS))
    throw new Error(`shader: ${gl.getShaderInfoLog(shader) ?? ""}`);
  return shader;
}

function linkProgram(gl: WebGL2RenderingContext, vertex: string, fragment: string): WebGLProgram {
  const program = gl.createProgram();
  gl.attachShader(program, compileShader(gl, gl.VERTEX_SHADER, vertex));
  gl.attachShader(program, compileShader(gl, gl.FRAGMENT_SHADER, fragment));
  gl.bindAttribLocation(program, 0, "delay");
  gl.bindAttribLocation(program, 1, "value");
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS))
    throw new Error(`program: ${gl.getProgramInfoLog(program) ?? ""}`);
  return program;
}

function isSoftware(gl: WebGL2RenderingContext): boolean {
  const info = gl.getExtension("WEBGL_debug_renderer_info");
  const name = String(gl.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : gl.RENDERER));
  return /swiftshader|llvmpipe|software|basic render/i.test(name);
}

class GlPainter implements Painter {
  readonly kind = "webgl2";
  readonly isSoftware: boolean;
  readonly maxPoints: number;
  private readonly gridProgram: WebGLProgram;
  private made: WebGLProgram | undefined;
  private readonly texture: WebGLTexture;
  private readonly buffers: [WebGLBuffer, WebGLBuffer];
  private readonly empty: WebGLVertexArrayObject;
  private readonly filled: WebGLVertexArrayObject;
  private sized = "";

  constructor(private readonly gl: WebGL2RenderingContext) {
    this.isSoftware = isSoftware(gl);
    this.maxPoints = this.isSoftware ? 5e4 : 1e6;
    this.gridProgram = linkProgram(gl, GRID_VERTEX, GRID_FRAGMENT);
    this.texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, this.texture);
    // Float textures cannot be filtered everywhere, and every cell is one pixel anyway.
    for (const name of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER])
      gl.texParameteri(gl.TEXTURE_2D, name, gl.NEAREST);
    this.empty = gl.createVertexArray();
    this.filled = gl.createVertexArray();
    this.buffers = [gl.createBuffer(), gl.createBuffer()];
    gl.bindVertexArray(this.filled);
    for (const [index, buffer] of this.buffers.entries()) {
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.enableVertexAttribArray(index);
      gl.vertexAttribIPointer(index, 1, gl.UNSIGNED_SHORT, 0, 0);
    }
  }

  /** Compiled when points are first drawn, because the first picture is a grid. */
  private get pointProgram(): WebGLProgram {
    this.made ??= linkProgram(this.gl, POINT_VERTEX, POINT_FRAGMENT);
    return this.made;
  }

  clear(): void {
    const { gl } = this;
    gl.viewport(0, 0, gl.drawingBufferWidth, gl.drawingBufferHeight);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
  }

  drawGrid(grid: Grid, look: ColorScale): void {
    const { gl } = this;
    this.clear();
    gl.useProgram(this.gridProgram);
    this.dress(this.gridProgram, look);
    gl.bindVertexArray(this.empty);
    const size = `${grid.width}x${grid.height}`;
    if (this.sized === size)
      gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, grid.width, grid.height, gl.RED, gl.FLOAT, grid.cells);
    else gl.texImage2D(gl.TEXTURE_2D, 0, gl.R32F, grid.width, grid.height, 0, gl.RED, gl.FLOAT, grid.cells);
    this.sized = size;
    gl.drawArrays(gl.TRIANGLES, 0, 3);
  }

  drawPoints(all: readonly Points[], look: ColorScale): void {
    const { gl, pointProgram: program } = this;
    this.clear();
    gl.useProgram(program);
    this.dress(program, look);
    gl.bindVertexArray(this.filled);
    gl.uniform2f(gl.getUniformLocation(program, "size"), gl.drawingBufferWidth, gl.drawingBufferHeight);
    for (const points of all) this.draw(points);
  }

  private draw({ delays, values, left, step, low, high, size }: Points): void {
    const { gl, pointProgram: program } = this;
    for (const [index, data] of [delays, values].entries()) {
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[index] as WebGLBuffer);
      gl.bufferData(gl.ARRAY_BUFFER, data, gl.STREAM_DRAW);
    }
    gl.uniform2f(gl.getUniformLocation(program, "x"), left, step);
    gl.uniform2f(gl.getUniformLocation(program, "y"), low, gl.drawingBufferHeight / (high - low));
    gl.uniform1f(gl.getUniformLocation(program, "across"), size);
    gl.drawArrays(gl.POINTS, 0, delays.length);
  }

  private dress(program: WebGLProgram, { mode, min, max, isDark: dark }: ColorScale): void {
    const { gl } = this;
    gl.uniform1i(gl.getUniformLocation(program, "mode"), MODES[mode]);
    gl.uniform2f(gl.getUniformLocation(program, "bounds"), min, max);
    gl.uniform2f(gl.getUniformLocation(program, "part"), ...scaleRange(dark));
  }

  dispose(): void {
    this.gl.getExtension("WEBGL_lose_context")?.loseContext();
  }
}

/** Return a painter for a canvas without a rendering context. */
export function createPainter(canvas: HTMLCanvasElement): Painter {
  const gl = canvas.getContext("webgl2", { antialias: false, premultipliedAlpha: false });
  return gl ? new GlPainter(gl) : createFlatPainter(canvas);
}
