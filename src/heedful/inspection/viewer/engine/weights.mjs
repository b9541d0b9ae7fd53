// Weights: the file holds them as bytes in base64, one tensor after the other.
//
//     int8       W[i][j] = scale[i] * q[i][j]           a scale per row, q from -127 to 127; vectors are float32
//     float16    W[i][j] = (-1)^sign * 1.fraction * 2^(exponent - 15)
//     float32    W[i][j]
//
// A tensor is { name, shape, kind }; two names of a tied table are one tensor.

import { matrix } from "./tensors.mjs";

export function bytesFromBase64(text) {
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

export function halfToNumber(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

const READERS = {
  float32: (view, at, size) => Float32Array.from({ length: size }, (_, i) => view.getFloat32(at + 4 * i, true)),
  float16: (view, at, size) => Float32Array.from({ length: size }, (_, i) => halfToNumber(view.getUint16(at + 2 * i, true))),
  int8: (view, at, size, rows) => {
    const numbers = new Float32Array(size), columns = size / rows, first = at + 4 * rows;
    for (let row = 0; row < rows; row++) {
      const scale = view.getFloat32(at + 4 * row, true);
      for (let i = row * columns; i < (row + 1) * columns; i++) numbers[i] = scale * view.getInt8(first + i);
    }
    return numbers;
  },
};
const BYTES = { float32: (size) => 4 * size, float16: (size) => 2 * size, int8: (size, rows) => size + 4 * rows };

// The tensors by name, as matrices; a vector is a matrix of one row, and a tensor of more dimensions has the rest in its columns.
export class Weights {
  constructor(tensors, ties, text) {
    const bytes = bytesFromBase64(text), view = new DataView(bytes.buffer);
    this.ties = ties;
    this.tables = new Map();
    let at = 0;
    for (const { name, shape, kind } of tensors) {
      const rows = shape.length > 1 ? shape[0] : 1, size = shape.reduce((product, length) => product * length, 1);
      this.tables.set(name, matrix(rows, size / rows, READERS[kind](view, at, size, rows)));
      at += BYTES[kind](size, rows);
    }
  }
  has(name) { return this.tables.has(this.ties[name] ?? name); }
  table(name) {
    const table = this.tables.get(this.ties[name] ?? name);
    if (!table) throw new Error(`there is no tensor ${name}`);
    return table;
  }
  vector(name) { return this.table(name).numbers; }
  // W and b of a layer; b may be missing.
  layer(name) { return { weight: this.table(`${name}.weight`), bias: this.has(`${name}.bias`) ? this.vector(`${name}.bias`) : null }; }
}
