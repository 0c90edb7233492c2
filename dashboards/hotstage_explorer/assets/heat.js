// SPDX-License-Identifier: Apache-2.0
// The browser's half of the page Heat: draw the columns that the server sent without touching the camera, hold still
// while somebody rotates, and move the camera by buttons. base.js has what all pages share. It computes nothing.
(function () {
    "use strict";

    const HOLD_AT_MOST_MS = 10000;   // a lost pointer-up must not freeze the drawing for ever
    const SETTLE_MS = 150;           // plotly saves the camera just after the pointer is up
    const WHEEL_MS = 400;
    const REDRAW_AT_MOST_MS = 5000;  // a frame that never comes must not end all updates
    const EYES = {
        overview: {eye: {x: 1.45, y: 1.45, z: 0.85}, up: {x: 0, y: 0, z: 1}},
        top: {eye: {x: 0.9, y: 0.9, z: 2.1}, up: {x: 0, y: 0, z: 1}},
        front: {eye: {x: 0.7, y: -2.05, z: 0.3}, up: {x: 0, y: 0, z: 1}},
        side: {eye: {x: 2.05, y: 0.7, z: 0.3}, up: {x: 0, y: 0, z: 1}},
    };
    const CENTER = {x: 0, y: 0, z: -0.16};

    const held = {since: 0, until: 0};   // since > 0: the pointer is down; until: the wheel still turns
    const bound = new WeakSet();         // drawings that have our listeners; a remount makes a new one
    const shown = new WeakMap();         // drawing -> what it was given last
    let pending = null;
    let quietUntil = 0;                  // after a slow redraw, leave the browser time for everything else

    const {byId, panels, press, deeds} = window.hotstage;
    const drawing = () => document.querySelector("#heat-figure .js-plotly-plot");

    // ---- the drawing ----

    function isHeld(now) {
        if (held.since && now - held.since < HOLD_AT_MOST_MS) return true;
        return now < held.until;
    }

    // Dash answers a moved camera by drawing the figure anew with the data of the page's start, and every update by
    // a round through its state: nobody here needs to hear of either.
    const UNHEARD = ["plotly_relayout", "plotly_restyle", "plotly_hover", "plotly_unhover", "plotly_click"];

    function bind(gd) {
        for (const name of UNHEARD) if (gd.removeAllListeners) gd.removeAllListeners(name);
        if (bound.has(gd)) return;
        bound.add(gd);
        const down = () => { if (!held.since) held.since = performance.now(); };
        for (const name of ["pointerdown", "mousedown", "touchstart"]) {
            gd.addEventListener(name, down, {capture: true, passive: true});
        }
        gd.addEventListener("wheel", () => {
            held.until = performance.now() + WHEEL_MS;
            setTimeout(flush, WHEEL_MS + 10);
        }, {capture: true, passive: true});
    }

    function release() {
        if (!held.since) return;
        setTimeout(() => { held.since = 0; flush(); }, SETTLE_MS);
    }
    for (const name of ["pointerup", "mouseup", "pointercancel", "touchend", "touchcancel"]) {
        window.addEventListener(name, release, true);
    }
    window.addEventListener("blur", release);   // not captured: a button that loses focus is no end of a drag

    function badge(text) {
        const at = byId("heat-badge");
        if (!at) return;
        at.hidden = !text;
        if (at.textContent !== text) at.textContent = text;
    }

    // Columns -> arguments of Plotly.update, without what the drawing already has.
    function difference(gd, c) {
        const is3d = Boolean(gd._fullLayout && gd._fullLayout.scene);
        const old = shown.get(gd) || {};
        const data = {x: [c.x], y: [c.y], "marker.color": [c.z], "marker.size": [c.size], customdata: [c.hover]};
        if (is3d) data.z = [c.z];
        const fixed = JSON.stringify([c.symbol, c.label, c.ids]);
        if (old.fixed !== fixed) {
            Object.assign(data, {"marker.symbol": [c.symbol], ids: [c.ids]});
            data["marker.line.width"] = [c.outline];
            if (!is3d) Object.assign(data, {text: [c.label], mode: [c.label.length ? "markers+text" : "markers"]});
        }
        if (is3d) {
            const stems = {x: [], y: [], z: []};
            if (c.stems) c.x.forEach((x, n) => {
                stems.x.push(x, x, null);
                stems.y.push(c.y[n], c.y[n], null);
                stems.z.push(0, c.z[n], null);
            });
            for (const axis of ["x", "y", "z"]) data[axis].push(stems[axis]);
        }
        const layout = {};
        const names = JSON.stringify(c.names);
        if (is3d && old.names !== names) layout["scene.annotations"] = c.names;
        const axes = JSON.stringify(c.axes);
        if (old.axes !== axes) {
            data["marker.cmax"] = [c.load_top];
            data["marker.colorbar.tickvals"] = [c.load_ticks];
            for (const [letter, axis] of Object.entries(c.axes)) {
                if (letter === "z" && !is3d) continue;
                const name = `${is3d ? "scene." : ""}${letter}axis`;
                layout[`${name}.type`] = axis.type;
                layout[`${name}.range`] = axis.range;
                layout[`${name}.title.text`] = axis.title;
                layout[`${name}.tickmode`] = axis.ticks ? "array" : "auto";
                layout[`${name}.tickvals`] = axis.ticks;
            }
        }
        // Plotly repeats a short list for the traces that follow: undefined is what leaves the stems alone.
        if (is3d) for (const value of Object.values(data)) if (value.length === 1) value.push(undefined);
        shown.set(gd, {fixed, names, axes});
        return {data, layout, traces: is3d ? [0, 1] : [0]};
    }

    function flush() {
        const gd = drawing();
        const now = performance.now();
        if (!pending || !gd || !gd._fullLayout || !window.Plotly) return null;
        bind(gd);
        if (isHeld(now)) {
            badge("Updates wait while you move the view");
            return null;
        }
        badge("");
        if (document.hidden || now < quietUntil) return null;
        const columns = pending.drawing;
        const version = pending.version;
        pending = null;
        const {data, layout, traces} = difference(gd, columns);
        const scene = gd._fullLayout.scene && gd._fullLayout.scene._scene;
        if (scene && scene.saveCamera) scene.saveCamera(gd.layout);   // the wheel moves it without saying so
        window.Plotly.update(gd, data, layout, traces);
        gd.dataset.version = String(version);
        gd.dataset.updates = String(Number(gd.dataset.updates || 0) + 1);
        quietUntil = now + REDRAW_AT_MOST_MS;
        requestAnimationFrame(() => setTimeout(() => {
            const took = performance.now() - now;   // up to and including the frame that shows it
            quietUntil = performance.now() + 1.5 * took;
            gd.dataset.updateMs = took.toFixed(1);
        }));
        return {version, points: columns.x.length};
    }

    function webgl() {
        try {
            const canvas = document.createElement("canvas");
            const context = canvas.getContext("webgl2") || canvas.getContext("webgl");
            if (context && context.getExtension("WEBGL_lose_context")) context.getExtension("WEBGL_lose_context").loseContext();
            return Boolean(context);
        } catch (error) {
            return false;
        }
    }

    // ---- what people do ----

    Object.assign(deeds, {
        sort(button) {
            // The time makes every click a change, also the second one on the same column.
            window.dash_clientside.set_props("heat-sort", {data: {column: button.dataset.sort, at: performance.now()}});
        },
        camera(button) {
            const gd = drawing();
            if (!gd || !gd._fullLayout || !gd._fullLayout.scene) return;
            window.Plotly.relayout(gd, {"scene.camera": {...EYES[button.dataset.camera], center: CENTER}});
        },
    });
    document.addEventListener("visibilitychange", () => { if (!document.hidden) flush(); });

    setInterval(() => {
        const gd = drawing();
        if (gd) bind(gd);
        if (pending) flush();
    }, 500);

    Object.assign(window.dash_clientside.hotstage, {
        show(shown) {
            const skip = window.dash_clientside.no_update;
            if (!shown) return skip;
            panels(shown);
            pending = shown;
            return flush() || skip;
        },
        fall_back() {
            if (webgl()) return window.dash_clientside.no_update;
            const button = byId("heat-view-3d");
            button.disabled = true;
            button.title = "3D needs WebGL, which this browser does not offer";
            press(byId("heat-view-2d"));
            return "2d";
        },
    });
}());
