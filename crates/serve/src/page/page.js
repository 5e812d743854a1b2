// The page of `hipvit serve`: sends a picture to a model by the Open Inference Protocol, and draws the answer.

const element = (id) => document.getElementById(id);
const canvas = element("canvas");
const context = canvas.getContext("2d");

let picture = null; // { url: data URL of the file, bitmap: what the browser decodes, if it can }
let model = null; // the metadata of the selected model
let chosen = null; // index of the class that is explained; null for the most likely one
const turns = { model: 0, picture: 0, result: 0 }; // numbers of the latest actions, since answers may overtake each other

class Refused extends Error {}

async function call(path, body) {
  const headers = {};
  const token = element("token").value;
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  if (response.status === 401) element("token-field").hidden = false;
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
  element("views").hidden = !offers("outputs", "explanation");
  // Texts have no class whose pixels could be shown.
  element("of-class").hidden = !element("texts").hidden;
  document.querySelector("input[name=view][value=picture]").checked = true;
  if (!offers("inputs", "image")) {
    throw new Refused(`${model.name} takes tensors, not pictures: ${model.inputs.map((input) => input.name).join(", ")}.`);
  }
  if (picture) await classify();
  else say("Waiting for a picture.");
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
  const isLatest = begin("result");
  const request = { inputs: [image()] };
  if (!element("texts").hidden) {
    const labels = element("labels").value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (labels.length) {
      request.inputs.push({ name: "text", datatype: "BYTES", shape: [labels.length], data: labels });
      request.parameters = { template: element("template").value || "{}" };
      request.outputs = [{ name: "top", parameters: { k: Math.min(5, labels.length) } }];
    }
  } else if (offers("outputs", "top")) {
    request.outputs = [{ name: "top", parameters: { k: 5 } }];
  }
  say(`${model.name} is running.`);
  const start = performance.now();
  const outputs = await current(isLatest, infer(request));
  if (!outputs) return;
  element("time").textContent = `${(performance.now() - start).toFixed(1)} ms from request to answer`;
  showOutputs(outputs);
  await explain();
}

function showOutputs(outputs) {
  const named = Object.fromEntries(outputs.map((output) => [output.name, output]));
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

/// A class of the result. Choosing it explains it.
function entryOf({ share, index, label }, rank) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.setAttribute("aria-pressed", String(chosen === null ? rank === 0 : chosen === index));
  button.style.background = `linear-gradient(to right, var(--bar) ${100 * share}%, transparent 0)`;
  for (const [name, text] of [["label", label], ["share", percent(share)]]) {
    const span = document.createElement("span");
    span.className = name;
    span.textContent = text;
    button.append(span);
  }
  button.addEventListener("click", () => {
    chosen = index;
    for (const other of element("top").querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
    shown(explain);
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

function drawPicture() {
  element("hint").hidden = true;
  element("legend").hidden = true;
  const { bitmap, name } = picture;
  const scale = bitmap ? Math.min(1, 1024 / Math.max(bitmap.width, bitmap.height)) : 1;
  canvas.width = bitmap ? Math.max(1, Math.round(bitmap.width * scale)) : 448;
  canvas.height = bitmap ? Math.max(1, Math.round(bitmap.height * scale)) : 336;
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

/// A colour from dark violet over red to light yellow, for 0 to 1.
function heat(share) {
  const stops = [[20, 8, 48], [106, 23, 110], [188, 55, 84], [243, 120, 25], [252, 255, 164]];
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  return [0, 1, 2].map((c) => stops[low][c] + (stops[low + 1][c] - stops[low][c]) * (at - low)).concat(255);
}

element("model").addEventListener("change", () => shown(selectModel));
element("token-field").addEventListener("submit", (event) => event.preventDefault());
element("token").addEventListener("change", () => shown(listModels));
element("run").addEventListener("click", () => picture && shown(classify));
element("file").addEventListener("change", ({ target }) => target.files[0] && shown(() => open(target.files[0])));
for (const input of document.querySelectorAll("input[name=view]")) input.addEventListener("change", () => shown(explain));
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
