// What a page says of its kernel, by what each host tells it; run by `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import { load } from "./load.mjs";

const kernel = await load("kernel");

/** A model as a host hands it out. */
function model(live, manager) {
  const sent = [];
  const layout = live === undefined ? undefined : { comm_live: live };
  return {
    sent,
    get: (name) => (name === "layout" ? layout : null),
    send: (message) => sent.push(message),
    save_changes: () => {},
    widget_manager: manager,
  };
}
const lab = (changes = {}) => ({
  kernel: {
    status: "busy",
    connectionStatus: "connected",
    isDisposed: false,
    ...changes,
  },
});

test("a kernel that may answer is waited for, whatever the host", () => {
  const hosts = { lab: model(true, lab()), marimo: model(undefined, {}) };
  for (const [name, one] of Object.entries({ ...hosts, site: model() })) {
    assert.equal(kernel.whyUnheard(one), "", name);
    assert.match(kernel.whyLate(one), /another cell is running/, name);
    assert.ok(kernel.tell(one, { type: "compute" }), name);
    assert.deepEqual(one.sent, [{ type: "compute" }], name);
  }
});

test("nothing is sent where no kernel hears it, and the page says what to do", () => {
  const gone = {
    "shut down": model(true, { kernel: null }),
    dead: model(true, lab({ status: "dead" })),
    disposed: model(true, lab({ isDisposed: true })),
    restarted: model(false, lab()),
  };
  for (const [name, one] of Object.entries(gone)) {
    assert.match(kernel.whyLate(one), /has stopped.*Run this cell/, name);
    assert.ok(!kernel.tell(one), name);
    assert.equal(one.sent.length, 0, name);
  }
  const saved = model(false, {});
  assert.match(kernel.whyLate(saved), /saved page.*Run its notebook/);
  assert.ok(!kernel.tell(saved));
});

test("a connection that is lost for a while is neither, and the host keeps what is sent", () => {
  const cut = model(true, lab({ status: "unknown", connectionStatus: "connecting" }));
  assert.match(kernel.whyLate(cut), /connection .* is lost/);
  assert.ok(kernel.tell(cut));
});

test("what is lacking is said when it changes, until the view goes", (context) => {
  context.mock.timers.enable({ apis: ["setInterval"] });
  const manager = lab();
  const said = [];
  let end = () => {};
  kernel.onLack(model(true, manager), { later: (action) => (end = action) }, (lack) =>
    said.push(lack),
  );
  context.mock.timers.tick(5000);
  manager.kernel.connectionStatus = "disconnected";
  context.mock.timers.tick(10_000);
  manager.kernel.connectionStatus = "connected";
  context.mock.timers.tick(5000);
  assert.equal(said.length, 2);
  assert.match(said[0], /lost/);
  assert.equal(said[1], "");
  end();
  manager.kernel = null;
  context.mock.timers.tick(5000);
  assert.equal(said.length, 2);
});
