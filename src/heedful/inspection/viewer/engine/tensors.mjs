// Tensors: vectors are Float32Arrays, a matrix is { rows, columns, numbers } with its rows one after the other.
//
//     linear       y = W x + b                          for every row x
//     layerNorm    y = g * (x - mean) / sqrt(variance + 1e-5) + b
//     logSoftmax   y_i = x_i - log sum_k exp(x_k)
//
// Sums are computed in double precision and stored in single precision.

export const matrix = (rows, columns, numbers = new Float32Array(rows * columns)) => ({ rows, columns, numbers });
export const rowOf = ({ columns, numbers }, at) => numbers.subarray(at * columns, (at + 1) * columns);
export const rowsOf = (table) => Array.from({ length: table.rows }, (_, at) => rowOf(table, at));

// Vectors of one length as a matrix.
export function stack(vectors) {
  const table = matrix(vectors.length, vectors[0].length);
  vectors.forEach((vector, at) => table.numbers.set(vector, at * table.columns));
  return table;
}

// Vectors one after the other, as one vector.
export function concatenate(...vectors) {
  const all = new Float32Array(vectors.reduce((sum, vector) => sum + vector.length, 0));
  let at = 0;
  for (const vector of vectors) {
    all.set(vector, at);
    at += vector.length;
  }
  return all;
}

// W has a row per output. Four outputs are computed together, because x is then read once for all of them.
export function linear(x, weight, bias = null) {
  const width = weight.columns, outputs = weight.rows, w = weight.numbers, y = matrix(x.rows, outputs);
  for (let out = 0; out < outputs; out += 4) {
    const count = Math.min(4, outputs - out);
    const a = out * width, b = a + (count > 1 ? width : 0), c = a + (count > 2 ? 2 * width : 0), d = a + (count > 3 ? 3 * width : 0);
    for (let row = 0; row < x.rows; row++) {
      const from = row * width, sums = y.numbers, to = row * outputs + out;
      let first = 0, second = 0, third = 0, fourth = 0;
      for (let i = 0; i < width; i++) {
        const value = x.numbers[from + i];
        first += value * w[a + i];
        second += value * w[b + i];
        third += value * w[c + i];
        fourth += value * w[d + i];
      }
      sums[to] = first + (bias ? bias[out] : 0);
      if (count > 1) sums[to + 1] = second + (bias ? bias[out + 1] : 0);
      if (count > 2) sums[to + 2] = third + (bias ? bias[out + 2] : 0);
      if (count > 3) sums[to + 3] = fourth + (bias ? bias[out + 3] : 0);
    }
  }
  return y;
}

export const linearVector = (x, weight, bias = null) => linear(matrix(1, x.length, x), weight, bias).numbers;

export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

// a + b, of two matrices or two vectors of the same size.
export const addVectors = (a, b) => a.map((value, i) => value + b[i]);
export const add = (a, b) => matrix(a.rows, a.columns, addVectors(a.numbers, b.numbers));
export const apply = (x, change) => matrix(x.rows, x.columns, x.numbers.map(change));

export function layerNorm(x, gain, bias) {
  const y = matrix(x.rows, x.columns), size = x.columns;
  for (let row = 0; row < x.rows; row++) {
    const values = rowOf(x, row), result = rowOf(y, row);
    let mean = 0, variance = 0;
    for (let i = 0; i < size; i++) mean += values[i] / size;
    for (let i = 0; i < size; i++) variance += (values[i] - mean) ** 2 / size;
    const factor = 1 / Math.sqrt(variance + 1e-5);
    for (let i = 0; i < size; i++) result[i] = (values[i] - mean) * factor * gain[i] + bias[i];
  }
  return y;
}

export function maximum(x) {
  let most = -Infinity;
  for (let i = 0; i < x.length; i++) if (x[i] > most) most = x[i];
  return most;
}

// The position of the largest value, the first of equals.
export function argmax(x) {
  let best = 0;
  for (let i = 1; i < x.length; i++) if (x[i] > x[best]) best = i;
  return best;
}

export function logSumExp(x) {
  const most = maximum(x);
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += Math.exp(x[i] - most);
  return most + Math.log(sum);
}

export function softmax(x) {
  const total = logSumExp(x);
  return x.map((value) => Math.exp(value - total));
}

export function logSoftmax(x) {
  const total = logSumExp(x);
  return x.map((value) => value - total);
}

export const sigmoid = (x) => 1 / (1 + Math.exp(-x));
