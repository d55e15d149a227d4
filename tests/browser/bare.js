// A page's part of ipywidgets: models, views and buffers over one connection to bare.py.

const models = new Map();
const socket = new WebSocket(`ws://${location.host}/messages`);
socket.onclose = () => {
  window.mwClosed = true;
};
const bytes = (text) => {
  const letters = atob(text);
  const found = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) found[i] = letters.charCodeAt(i);
  return new DataView(found.buffer);
};
const letters = (data) => {
  const view = new Uint8Array(
    data.buffer ?? data,
    data.byteOffset ?? 0,
    data.byteLength,
  );
  let text = "";
  for (const byte of view) text += String.fromCharCode(byte);
  return btoa(text);
};
const put = (state, paths, buffers) => {
  paths.forEach((path, i) => {
    let at = state;
    for (const step of path.slice(0, -1)) at = at[step];
    at[path.at(-1)] = buffers[i];
  });
  return state;
};
const isBinary = (value) => value instanceof ArrayBuffer || ArrayBuffer.isView(value);
const take = (value, path, paths, buffers) => {
  if (isBinary(value)) {
    paths.push(path);
    buffers.push(letters(value));
    return null;
  }
  if (value === null || typeof value !== "object") return value;
  const copy = Array.isArray(value) ? [] : {};
  for (const key of Object.keys(value))
    copy[key] = take(value[key], [...path, key], paths, buffers);
  return copy;
};
class Model {
  constructor(id, state) {
    Object.assign(this, { id, state, changed: {}, handlers: new Map() });
  }
  get(name) {
    return this.state[name];
  }
  set(name, value) {
    this.take({ [name]: value });
    this.changed[name] = value;
  }
  take(values) {
    const other = Object.keys(values).filter((name) => {
      const [now, then] = [this.state[name], values[name]];
      return (
        now !== then && (isBinary(then) || JSON.stringify(now) !== JSON.stringify(then))
      );
    });
    for (const name of other) this.state[name] = values[name];
    for (const name of other) this.emit(`change:${name}`);
    if (other.length > 0) this.emit("change");
  }
  save_changes() {
    const [paths, buffers] = [[], []];
    const state = take(this.changed, [], paths, buffers);
    this.changed = {};
    if (Object.keys(state).length > 0)
      this.post({ method: "update", state, buffer_paths: paths }, buffers);
  }
  send(content) {
    this.post({ method: "custom", content }, []);
  }
  post(data, buffers) {
    socket.send(JSON.stringify({ comm: this.id, data, buffers }));
  }
  on(name, handler) {
    const known = this.handlers.get(name) ?? new Set();
    this.handlers.set(name, known.add(handler));
  }
  off(name, handler) {
    this.handlers.get(name)?.delete(handler);
  }
  emit(name, ...args) {
    for (const one of [...(this.handlers.get(name) ?? [])]) one(...args);
  }
}
const views = new Map();
const show = async (id, token) => {
  const model = models.get(id);
  const style = document.createElement("style");
  style.textContent = model.get("_css");
  document.head.append(style);
  const address = URL.createObjectURL(
    new Blob([model.get("_esm")], { type: "text/javascript" }),
  );
  const el = document.createElement("div");
  document.querySelector("main").append(el); // at once: modules do not load in the order of the cells
  const module = (await import(address)).default;
  const undo = await (module.render ?? module)({ model, el });
  views.set(id, [
    ...(views.get(id) ?? []),
    () => {
      undo?.();
      el.remove();
    },
  ]);
  socket.send(JSON.stringify({ done: token }));
};
socket.onmessage = ({ data: text }) => {
  const { kind, comm, data, buffers, token } = JSON.parse(text);
  const found = (buffers ?? []).map(bytes);
  if (kind === "show") show(comm, token);
  else if (kind === "flush") socket.send(JSON.stringify({ done: token }));
  else if (kind === "comm_open")
    models.set(comm, new Model(comm, put(data.state, data.buffer_paths, found)));
  else if (kind === "comm_close") {
    for (const undo of views.get(comm) ?? []) undo();
    models.delete(comm);
  } else if (data.method === "update")
    models.get(comm)?.take(put(data.state, data.buffer_paths, found));
  else if (data.method === "custom")
    models.get(comm)?.emit("msg:custom", data.content, found);
};
