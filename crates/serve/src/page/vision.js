// Objects, masks and depths: reads their tensors, and draws them.

const TYPES = { FP32: Float32Array, INT32: Int32Array, BOOL: Uint8Array, UINT8: Uint8Array };

/// Reads an answer of JSON, after which the data of its binary tensors follows.
export function readTensors(body, length) {
  const { outputs } = JSON.parse(new TextDecoder().decode(body.slice(0, length)));
  let at = length;
  for (const output of outputs) {
    const size = output.parameters?.binary_data_size;
    if (size === undefined) continue;
    output.data = new TYPES[output.datatype](body.slice(at, at + size));
    at += size;
  }
  return outputs;
}

/// A colour from dark violet over red to light yellow, for 0 to 1.
export function heat(share) {
  const stops = [[20, 8, 48], [106, 23, 110], [188, 55, 84], [243, 120, 25], [252, 255, 164]];
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  return [0, 1, 2].map((c) => stops[low][c] + (stops[low + 1][c] - stops[low][c]) * (at - low)).concat(255);
}

/// The objects of an image, the best first.
export function objectsOf(named) {
  const count = named.counts.data[0];
  return Array.from({ length: count }, (_, i) => ({
    label: named.labels.data[i],
    index: named.classes.data[i],
    share: named.scores.data[i],
    box: Array.from(named.boxes.data.slice(4 * i, 4 * i + 4)),
  }));
}

/// A bright colour. Neighbouring classes have distant hues.
const hue = (index) => Math.round(360 * ((index * 0.618034) % 1));

/// Draws boxes with their labels, the best on top. `chosen` is the index of one that stands out.
export function drawBoxes(context, objects, scale, chosen) {
  const { width, height } = context.canvas;
  const size = Math.max(12, Math.round(Math.max(width, height) / 40));
  context.font = `${size}px "DejaVu Sans", sans-serif`;
  context.textBaseline = "top";
  const order = objects.map((_, i) => i).reverse();
  if (chosen !== null) order.push(order.splice(order.indexOf(chosen), 1)[0]);
  for (const i of order) {
    const { label, index, share, box } = objects[i];
    const [left, top, right, bottom] = box.map((edge) => edge * scale);
    context.lineWidth = (i === chosen ? 2 : 1) * Math.max(2, size / 6);
    context.strokeStyle = `hsl(${hue(index)} 90% 60%)`;
    context.strokeRect(left, top, right - left, bottom - top);
    const text = `${label} ${(100 * share).toFixed(0)} %`;
    const wide = context.measureText(text).width + size / 2;
    // A label stays in the picture.
    const x = Math.min(Math.max(left, 0), Math.max(0, width - wide));
    const y = Math.min(Math.max(top, 0), height - 1.4 * size);
    context.fillStyle = context.strokeStyle;
    context.fillRect(x, y, wide, 1.4 * size);
    context.fillStyle = "#000";
    context.fillText(text, x + size / 4, y + 0.2 * size);
  }
}

/// Draws values of pixels over the whole canvas. `colour` returns red, green, blue and opacity, from 0 to 255.
function drawPixels(context, width, height, data, colour) {
  const map = new OffscreenCanvas(width, height);
  const pixels = new ImageData(width, height);
  data.forEach((value, i) => pixels.data.set(colour(value), 4 * i));
  map.getContext("2d").putImageData(pixels, 0, 0);
  context.drawImage(map, 0, 0, context.canvas.width, context.canvas.height);
}

/// Draws a mask of the canvas's size over the picture: red in the object, darker elsewhere.
export function drawMask(context, mask) {
  const { width, height } = context.canvas;
  drawPixels(context, width, height, mask, (inside) => (inside ? [255, 60, 60, 128] : [0, 0, 0, 115]));
}

/// Draws the points of an object as filled circles, and those outside of it as rings.
export function drawPoints(context, points) {
  const radius = Math.max(4, Math.max(context.canvas.width, context.canvas.height) / 120);
  for (const { x, y, inside } of points) {
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.lineWidth = radius / 2;
    context.strokeStyle = inside ? "#fff" : "#000";
    context.fillStyle = inside ? "#0a58ff" : "#fff";
    context.fill();
    context.stroke();
  }
}

/// Draws the cross that the keyboard moves.
export function drawCross(context, { x, y }) {
  const { width, height } = context.canvas;
  const arm = Math.max(width, height) / 30;
  for (const [colour, line] of [["#000", 5], ["#fff", 2]]) {
    context.strokeStyle = colour;
    context.lineWidth = line;
    context.beginPath();
    context.moveTo(x - arm, y);
    context.lineTo(x + arm, y);
    context.moveTo(x, y - arm);
    context.lineTo(x, y + arm);
    context.stroke();
  }
}

/// Draws depths `[1, h, w]` over the whole canvas. Returns the smallest and the largest one.
export function drawDepth(context, { shape, data }) {
  const [height, width] = shape.slice(-2);
  let [least, most] = [Infinity, -Infinity];
  for (const value of data) {
    least = Math.min(least, value);
    most = Math.max(most, value);
  }
  drawPixels(context, width, height, data, (value) => heat((value - least) / (most - least || 1)));
  return [least, most];
}

/// Converts a place on the page to pixels of a canvas that is fitted into its box. `null` beside the picture.
export function placeOn(canvas, { clientX, clientY }) {
  const box = canvas.getBoundingClientRect();
  const scale = Math.min(box.width / canvas.width, box.height / canvas.height);
  const x = (clientX - box.left - (box.width - canvas.width * scale) / 2) / scale;
  const y = (clientY - box.top - (box.height - canvas.height * scale) / 2) / scale;
  return x >= 0 && y >= 0 && x <= canvas.width && y <= canvas.height ? { x, y } : null;
}
