/**
 * The editor of queries: CodeMirror where its packages are there, else a plain field with the same colours. Both have
 * the same face: text, focus, mark, clear.
 */

import { h, show } from "./dom.js";
import { completions, placeOf, tokens } from "./sparql.js";

/** Make an editor inside of an element. run: called by Ctrl-Enter; known: for completion, see sparql.js. */
export async function makeEditor(parent, { text, label, run, known }) {
  const parts = await codeMirror();
  return parts ? withCodeMirror(parts, parent, { text, label, run, known }) : plain(parent, { text, label, run });
}

async function codeMirror() {
  const names = ["state", "view", "commands", "autocomplete", "lint"];
  try {
    const found = await Promise.all(names.map((name) => import(`@codemirror/${name}`)));
    return Object.assign({}, ...found);
  } catch {
    return null; // the packages were not fetched: see docs/http.md
  }
}

function withCodeMirror(cm, parent, { text, label, run, known }) {
  const colours = (view) =>
    cm.Decoration.set(
      tokens(view.state.doc.toString()).map(({ kind, from, to }) => cm.Decoration.mark({ class: `token-${kind}` }).range(from, to)),
    );
  const colouring = cm.ViewPlugin.fromClass(
    class {
      constructor(view) {
        this.decorations = colours(view);
      }
      update(update) {
        if (update.docChanged) this.decorations = colours(update.view);
      }
    },
    { decorations: (plugin) => plugin.decorations },
  );
  const source = ({ state, pos, explicit }) => {
    const found = completions(state.doc.toString(), pos, known());
    if (!found || (!explicit && found.from === pos)) return null;
    const options = found.options.map(({ label: name, detail, kind, declares }) => ({
      label: name,
      detail,
      type: kind,
      boost: kind === "keyword" ? -1 : 1,
      apply: (view, _, from, to) => {
        const changes = [{ from, to, insert: name }];
        if (declares) changes.unshift({ from: 0, insert: declares });
        view.dispatch({ changes, selection: { anchor: from + name.length + (declares?.length ?? 0) } });
      },
    }));
    return { from: found.from, options, validFor: /^[?$<]?[\w:/.#-]*$/ };
  };
  const view = new cm.EditorView({
    parent,
    doc: text,
    extensions: [
      cm.EditorView.cspNonce.of(document.querySelector("script[nonce]").nonce),
      cm.EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false" }),
      cm.EditorView.lineWrapping,
      cm.lineNumbers(),
      cm.highlightSpecialChars(),
      cm.drawSelection(),
      cm.history(),
      cm.autocompletion({ override: [source] }),
      colouring,
      cm.Prec.highest(cm.keymap.of([{ key: "Mod-Enter", run: () => (run(), true) }])),
      cm.keymap.of([...cm.defaultKeymap, ...cm.historyKeymap, ...cm.completionKeymap, ...cm.lintKeymap]),
    ],
  });
  const diagnose = (found) => view.dispatch(cm.setDiagnostics(view.state, found));
  return {
    kind: "codemirror",
    text: () => view.state.doc.toString(),
    focus: () => view.focus(),
    mark: (told) => {
      const place = placeOf(view.state.doc.toString(), told);
      diagnose([{ ...place, severity: "error", message: [told.detail, told.suggestion].filter(Boolean).join("; ") }]);
      view.dispatch({ effects: cm.EditorView.scrollIntoView(place.from) });
    },
    clear: () => diagnose([]),
  };
}

function plain(parent, { text, label, run }) {
  const field = h("textarea", { "aria-label": label, spellcheck: "false", rows: 12 });
  const behind = h("pre", { "aria-hidden": "true" });
  let marked = null;
  const paint = () => {
    const whole = field.value;
    const parts = [];
    let at = 0;
    const put = (to, kind) => {
      if (to > at) parts.push(kind ? h("span", { class: kind }, whole.slice(at, to)) : whole.slice(at, to));
      at = Math.max(at, to);
    };
    for (const { kind, from, to } of tokens(whole)) {
      if (marked && marked.from >= at && marked.from < to) {
        put(marked.from);
        put(marked.to, "token-error");
      }
      if (from < at) continue;
      put(from);
      put(to, `token-${kind}`);
    }
    if (marked && marked.from >= at) {
      put(marked.from);
      put(Math.max(marked.to, marked.from + 1), "token-error");
    }
    put(whole.length);
    show(behind, ...parts, "\n");
  };
  field.addEventListener("input", () => {
    marked = null;
    paint();
  });
  field.addEventListener("scroll", () => {
    behind.scrollTop = field.scrollTop;
    behind.scrollLeft = field.scrollLeft;
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    }
  });
  field.value = text;
  show(parent, h("div", { class: "plain-editor" }, behind, field));
  paint();
  return {
    kind: "plain",
    text: () => field.value,
    focus: () => field.focus(),
    mark: (told) => {
      marked = placeOf(field.value, told);
      paint();
    },
    clear: () => {
      marked = null;
      paint();
    },
  };
}
