// The page of `hipvit serve`: sends a picture to a model by the Open Inference Protocol, and draws the answer.

import { drawBoxes, drawCross, drawDepth, drawMask, drawPoints, heat, objectsOf, placeOn, readTensors } from "./vision.js";

const element = (id) => document.getElementById(id);
const canvas = element("canvas");
const context = canvas.getContext("2d");

let picture = null; // { url: data URL of the file, bitmap: what the browser decodes, if it can }
let model = null; // the metadata of the selected model
let chosen = null; // index of the class that is explained, or of the box that stands out; null for the most likely class
let found = []; // objects of the picture
let [points, mask, cross] = [[], null, null]; // of the object that is segmented; the cross is what the keyboard moves
const turns = { model: 0, picture: 0, result: 0 }; // numbers of the latest actions, since answers may overtake each other

class Refused extends Error {}

async function call(path, body) {
  const headers = {};
  const token = element("token").value;
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  if (response.status === 401) element("token-field").hidden = false;
  const length = response.headers.get("Inference-Header-Content-Length");
  if (response.ok && length !== null) return { outputs: readTensors(await response.arrayBuffer(), Number(length)) };
  const answer = await response.json();
  if (!response.ok) throw new Refused(answer.error?.message ?? answer.error ?? response.statusText);
  return answer;
}

function say(text, failed = false) {
  element("status").textContent = text;
  element("status").classList.toggle("failed", failed);
}

/// Runs `work` and shows its error.
async function shown(work) {
  try {
    await work();
  } catch (error) {
    say(error instanceof Refused ? error.message : `The server does not answer: ${error.message}`, true);
  }
}

/// Begins an action. Returns a function that is true until the next action of its kind.
function begin(kind) {
  const turn = ++turns[kind];
  return () => turn === turns[kind];
}

/// Waits for an answer. Returns undefined if another action has begun, also instead of an error.
async function current(isLatest, answer) {
  try {
    const value = await answer;
    return isLatest() ? value : undefined;
  } catch (error) {
    if (isLatest()) throw error;
    return undefined;
  }
}

const offers = (list, name) => model?.[list].some((tensor) => tensor.name === name) ?? false;

async function listModels() {
  const { data } = await call("v1/models");
  element("model").replaceChildren(...data.map(({ id }) => new Option(id, id)));
  if (data.length === 0) throw new Refused("The server has no model.");
  await selectModel();
}

async function selectModel() {
  const isLatest = begin("model");
  const metadata = await current(isLatest, call(`v2/models/${encodeURIComponent(element("model").value)}`));
  if (!metadata) return;
  model = metadata;
  chosen = null;
  element("texts").hidden = !(offers("inputs", "text") && offers("outputs", "probabilities"));
  const [explains, hasDepth] = ["explanation", "predicted_depth"].map((name) => offers("outputs", name));
  element("views").hidden = !(explains || hasDepth);
  // Texts have no class whose pixels could be shown.
  element("of-class").hidden = !explains || !element("texts").hidden;
  element("of-blocks").hidden = !explains;
  element("of-depth").hidden = !hasDepth;
  document.querySelector(`input[name=view][value=${hasDepth ? "depth" : "picture"}]`).checked = true;
  element("scores").hidden = !offers("outputs", "boxes");
  setPointing(segments());
  clearResult();
  if (!offers("inputs", "image")) {
    throw new Refused(`${model.name} takes tensors, not pictures: ${model.inputs.map((input) => input.name).join(", ")}.`);
  }
  if (picture) await classify();
  else say("Waiting for a picture.");
}

/// Makes the canvas a control on which points are chosen, or a picture.
function setPointing(isOn) {
  element("pointing").hidden = !isOn;
  canvas.classList.toggle("pointing", isOn);
  canvas.setAttribute("role", isOn ? "application" : "img");
  if (isOn) {
    canvas.tabIndex = 0;
    canvas.setAttribute("aria-describedby", "pointing-help");
  } else {
    canvas.removeAttribute("tabindex");
    canvas.removeAttribute("aria-describedby");
  }
}

/// Removes the result of another model.
function clearResult() {
  found = [];
  element("text").hidden = true;
  element("top").replaceChildren();
  element("time").textContent = "";
  if (picture) drawPicture();
}

async function open(file) {
  const isLatest = begin("picture");
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Refused(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
  // The server reads formats that browsers do not show, such as TIFF.
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (!isLatest()) return;
  picture = { url, bitmap, name: file.name || "picture" };
  chosen = null;
  drawPicture();
  if (model) await classify();
}

const image = () => ({ name: "image", datatype: "BYTES", shape: [1], data: [picture.url.slice(picture.url.indexOf(",") + 1)] });

async function infer(request) {
  return (await call(`v2/models/${encodeURIComponent(model.name)}/infer`, request)).outputs;
}

async function classify() {
  if (segments()) return clearPoints();
  if (offers("outputs", "predicted_depth")) return view() === "depth" ? showDepth() : drawPicture();
  const isLatest = begin("result");
  const request = { inputs: [offers("outputs", "boxes") ? drawnImage() : image()] };
  if (!element("texts").hidden) {
    const labels = element("labels").value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (labels.length) {
      request.inputs.push({ name: "text", datatype: "BYTES", shape: [labels.length], data: labels });
      request.parameters = { template: element("template").value || "{}" };
      request.outputs = [{ name: "top", parameters: { k: Math.min(5, labels.length) } }];
    }
  } else if (offers("outputs", "top")) {
    request.outputs = [{ name: "top", parameters: { k: 5 } }];
  } else if (offers("outputs", "boxes")) {
    request.parameters = { threshold: Number(element("threshold").value) };
  }
  say(`${model.name} is running.`);
  const start = performance.now();
  const outputs = await current(isLatest, infer(request));
  if (!outputs) return;
  showTime(start);
  showOutputs(outputs);
  if (!offers("outputs", "boxes")) await explain();
}

function showTime(start) {
  element("time").textContent = `${(performance.now() - start).toFixed(1)} ms from request to answer`;
}

function showOutputs(outputs) {
  const named = Object.fromEntries(outputs.map((output) => [output.name, output]));
  if (named.boxes) return showObjects(named);
  element("text").hidden = !named.text;
  element("text").textContent = named.text?.data.join("\n") ?? "";
  const top = (named.top?.data ?? []).map((entry) => {
    const [share, index, ...label] = entry.split(":");
    return { share: Number(share), index: Number(index), label: label.join(":") || index };
  });
  element("top").replaceChildren(...top.map(entryOf));
  if (top.length) say(`${picture.name}: ${top[0].label}, ${percent(top[0].share)}.`);
  else if (named.text) say(`${picture.name}:`);
  else say(`${picture.name}: ${outputs.map(({ name, shape }) => `${name} [${shape.join(", ")}]`).join("; ")}.`);
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;

/// A class of the result, or an object with its place. Choosing it explains it, or highlights its box.
function entryOf({ share, index, label, place }, rank) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  const isFirst = !place && rank === 0;
  button.setAttribute("aria-pressed", String(chosen === null ? isFirst : chosen === index));
  button.style.background = `linear-gradient(to right, var(--bar) ${100 * share}%, transparent 0)`;
  for (const [name, text] of [["label", label], ["share", percent(share)]]) {
    const span = document.createElement("span");
    span.className = name;
    span.textContent = text;
    button.append(span);
  }
  if (place) {
    const span = document.createElement("span");
    span.className = "visually-hidden";
    span.textContent = `, from ${place[0]}, ${place[1]} to ${place[2]}, ${place[3]}`;
    button.append(span);
  }
  button.addEventListener("click", () => {
    chosen = place ? rank : index;
    for (const other of element("top").querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
    shown(place ? drawObjects : explain);
  });
  item.append(button);
  return item;
}

const view = () => document.querySelector("input[name=view]:checked").value;

async function explain() {
  const isLatest = begin("result");
  const method = view();
  if (!picture) return;
  if (method === "picture" || element("views").hidden) return drawPicture();
  const parameters = { method };
  if (chosen !== null && method !== "rollout") parameters.class = chosen;
  const request = { inputs: [image()], outputs: [{ name: "explanation", parameters }, { name: "resized" }] };
  const answer = await current(isLatest, infer(request));
  if (!answer) return;
  const [map, resized] = ["explanation", "resized"].map((wanted) => answer.find(({ name }) => name === wanted));
  drawExplanation(map, resized.data, method);
}

/// Width and height of the drawn picture.
function drawnSize() {
  const { bitmap } = picture;
  if (!bitmap) return [448, 336];
  const scale = Math.min(1, 1024 / Math.max(bitmap.width, bitmap.height));
  return [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(side * scale)));
}

function drawPicture(enlarged = 1) {
  element("hint").hidden = true;
  element("legend").hidden = true;
  const { bitmap, name } = picture;
  [canvas.width, canvas.height] = drawnSize().map((side) => Math.round(side * enlarged));
  if (bitmap) context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  else element("hint").hidden = !(element("hint").textContent = `${name}: the browser cannot show this format.`);
  canvas.setAttribute("aria-label", name);
}

/// Draws `[1, H, W]` values over the picture at the model's size.
function drawExplanation({ shape, data }, resized, method) {
  const [height, width] = shape.slice(-2);
  Object.assign(canvas, { width, height });
  const sizes = data.map(Math.abs).sort((a, b) => a - b);
  const most = sizes[Math.floor(0.998 * (sizes.length - 1))] || 1;
  const pixels = new ImageData(width, height);
  data.forEach((value, i) => {
    const share = Math.min(1, Math.abs(value) / most);
    const grey = (resized[3 * i] * 0.299 + resized[3 * i + 1] * 0.587 + resized[3 * i + 2] * 0.114) * 0.6 + 60;
    const colour = method === "rollout" ? heat(share) : value > 0 ? [230, 30, 30] : [40, 90, 255];
    const weight = method === "rollout" ? 0.75 : Math.sqrt(share);
    pixels.data.set([0, 1, 2].map((c) => grey * (1 - weight) + colour[c] * weight).concat(255), 4 * i);
  });
  context.putImageData(pixels, 0, 0);
  const text = method === "rollout"
    ? "Attention rollout over all blocks: bright patches are read most."
    : "Red pixels speak for the selected class, blue ones against it (AttnLRP).";
  element("legend").textContent = text;
  element("legend").hidden = false;
  canvas.setAttribute("aria-label", `${picture.name}. ${text}`);
}

/// True if the selected model segments at points.
const segments = () => offers("outputs", "masks");

function drawObjects() {
  // Boxes and labels are drawn sharply on a small picture, too.
  const [width, height] = drawnSize();
  const enlarged = Math.max(1, 900 / Math.max(width, height));
  drawPicture(enlarged);
  if (!found.length || !picture.bitmap) return;
  drawBoxes(context, found, enlarged, chosen);
  canvas.setAttribute("aria-label", `${picture.name} with ${found.length} boxes, which the list describes`);
}

/// Shows the objects on the picture and in a list.
function showObjects(named) {
  found = objectsOf(named);
  chosen = null;
  drawObjects();
  const entries = found.map((object, rank) => ({ ...object, rank, place: object.box.map(Math.round) }));
  element("top").replaceChildren(...entries.map(entryOf));
  say(`${picture.name}: ${found.length === 1 ? "1 object" : `${found.length} objects`}.`);
}

async function showDepth() {
  const isLatest = begin("result");
  const request = { inputs: [drawnImage()], outputs: [{ name: "predicted_depth", parameters: { binary_data: true } }] };
  say(`${model.name} is running.`);
  const start = performance.now();
  const outputs = await current(isLatest, infer(request));
  if (!outputs) return;
  showTime(start);
  drawPicture();
  const [least, most] = drawDepth(context, outputs[0]).map((depth) => depth.toPrecision(3));
  const text = "Bright pixels have large depths: of a relative model they are near, of a metric one they are far.";
  element("legend").textContent = text;
  element("legend").hidden = false;
  element("hint").hidden = true;
  canvas.setAttribute("aria-label", `Depth of ${picture.name}. ${text}`);
  say(`${picture.name}: depths from ${least} to ${most}.`);
}

/// The picture as it is drawn, for a model whose results are places on it. Cameras' orientation is applied, which the server ignores.
function drawnImage() {
  if (!picture.bitmap) return image();
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = drawnSize();
  copy.getContext("2d").drawImage(picture.bitmap, 0, 0, copy.width, copy.height);
  const url = copy.toDataURL("image/png");
  return { name: "image", datatype: "BYTES", shape: [1], data: [url.slice(url.indexOf(",") + 1)] };
}

function drawPointing() {
  drawPicture();
  if (mask) drawMask(context, mask);
  drawPoints(context, points);
  if (document.activeElement === canvas && cross) drawCross(context, cross);
}

/// Begins with a picture without points.
function clearPoints() {
  begin("result");
  [points, mask, cross] = [[], null, null];
  element("top").replaceChildren();
  element("time").textContent = "";
  if (!picture) return;
  drawPointing();
  if (picture.bitmap) say(`${picture.name}: choose a point of an object.`);
  else say(`${picture.name}: the browser cannot show this format, so that no point can be chosen.`, true);
}

async function addPoint({ x, y }) {
  const isLatest = begin("result");
  points.push({ x, y, inside: !element("outside").checked });
  drawPointing();
  const request = {
    inputs: [
      drawnImage(),
      { name: "input_points", datatype: "FP32", shape: [1, 1, points.length, 2], data: points.flatMap((point) => [point.x, point.y]) },
      { name: "input_labels", datatype: "INT32", shape: [1, 1, points.length], data: points.map((point) => Number(point.inside)) },
    ],
    outputs: [{ name: "masks", parameters: { binary_data: true } }, { name: "iou_scores" }],
    parameters: { best_mask: true },
  };
  say(`${model.name} is running.`);
  const start = performance.now();
  const outputs = await current(isLatest, infer(request));
  if (!outputs) return;
  showTime(start);
  const [masks, scores] = ["masks", "iou_scores"].map((wanted) => outputs.find(({ name }) => name === wanted));
  mask = masks.data;
  drawPointing();
  const share = mask.reduce((sum, inside) => sum + inside, 0) / mask.length;
  say(`${picture.name}: the mask has ${percent(share)} of the picture, score ${scores.data[0].toFixed(2)}.`);
}

/// Moves the cross, adds a point or removes all.
function pressKey(event) {
  if (!segments() || !picture?.bitmap) return;
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const step = steps[event.key];
  if (step) {
    const size = Math.max(canvas.width, canvas.height) / (event.shiftKey ? 10 : 50);
    const moved = (place, direction, side) => Math.min(Math.max(place + direction * size, 0), side);
    cross = { x: moved(cross.x, step[0], canvas.width), y: moved(cross.y, step[1], canvas.height) };
    drawPointing();
    say(`Cross at ${percent(cross.x / canvas.width)} from the left, ${percent(cross.y / canvas.height)} from the top.`);
  } else if (event.key === "Enter" || event.key === " ") {
    shown(() => addPoint(cross));
  } else if (event.key === "Delete" || event.key === "Backspace") {
    clearPoints();
    focusCanvas();
  } else {
    return;
  }
  event.preventDefault();
}

function focusCanvas() {
  if (!segments() || !picture?.bitmap) return;
  cross ??= { x: canvas.width / 2, y: canvas.height / 2 };
  drawPointing();
}

element("model").addEventListener("change", () => shown(selectModel));
element("token-field").addEventListener("submit", (event) => event.preventDefault());
element("token").addEventListener("change", () => shown(listModels));
element("run").addEventListener("click", () => picture && shown(classify));
element("file").addEventListener("change", ({ target }) => target.files[0] && shown(() => open(target.files[0])));
const changeView = () => (offers("outputs", "predicted_depth") ? picture && classify() : explain());
for (const input of document.querySelectorAll("input[name=view]")) input.addEventListener("change", () => shown(changeView));
element("threshold").addEventListener("input", ({ target }) => (element("threshold-value").textContent = Number(target.value).toFixed(2)));
element("threshold").addEventListener("change", () => picture && shown(classify));
element("clear").addEventListener("click", () => segments() && clearPoints());
canvas.addEventListener("click", (event) => {
  const place = segments() && picture?.bitmap && placeOn(canvas, event);
  if (place) shown(() => addPoint(place));
});
canvas.addEventListener("keydown", pressKey);
canvas.addEventListener("focus", focusCanvas);
canvas.addEventListener("blur", () => segments() && picture && drawPointing());
document.addEventListener("paste", ({ clipboardData }) => clipboardData.files[0] && shown(() => open(clipboardData.files[0])));
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  element("drop").classList.add("over");
});
document.addEventListener("dragleave", () => element("drop").classList.remove("over"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  element("drop").classList.remove("over");
  const file = event.dataTransfer.files[0];
  if (file) shown(() => open(file));
});

shown(listModels);
