(function () {
  "use strict";
  var page = document, root = page.documentElement, thin = "\u202f";
  var data = JSON.parse(page.getElementById("data").textContent);
  function all(selector) { return Array.prototype.slice.call(page.querySelectorAll(selector)); }
  var fixed = window.confideValues.fixed;
  function percent(share, digits) { return fixed(100 * share, digits) + thin + "%"; }
  function whole(value) { return Math.round(value).toLocaleString("en-US"); }

  // Theme: the system's until the reader chooses.
  var button = page.getElementById("theme"), system = matchMedia("(prefers-color-scheme: dark)");
  function isDark() { return root.dataset.theme ? root.dataset.theme === "dark" : system.matches; }
  function nameTheme() { button.textContent = isDark() ? "Light" : "Dark"; }
  button.hidden = false;
  button.addEventListener("click", function () { root.dataset.theme = isDark() ? "light" : "dark"; nameTheme(); });
  system.addEventListener("change", nameTheme);
  nameTheme();

  // Tips close with Escape.
  page.addEventListener("keydown", function (event) {
    if (event.key === "Escape" && page.activeElement.classList.contains("term")) page.activeElement.blur();
  });

  // Where the explorer shows the report, samples are links to it; elsewhere they are not.
  var explored = location.pathname === "/report";
  if (explored) all("[data-explorer]").forEach(function (link) { link.href = "/?" + link.dataset.explorer; link.hidden = false; });

  // Bins: every variant is drawn already; the switch shows one.
  var switches = all("[data-switch]");
  function chosen(name) { return page.querySelector('[data-switch="' + name + '"] [aria-pressed="true"]').value; }
  function exists(key) { return page.querySelector('#diagrams [data-variant="' + key + '"]') !== null; }
  function showBins() {
    var key = chosen("kind") + "-" + chosen("bins");
    all("#diagrams [data-variant]").forEach(function (figure) { figure.hidden = figure.dataset.variant !== key; });
    all('[data-switch="bins"] button').forEach(function (b) { b.disabled = !exists(chosen("kind") + "-" + b.value); });
  }
  switches.forEach(function (group) {
    page.querySelector(".controls").hidden = false;
    group.addEventListener("click", function (event) {
      var pressed = event.target.closest("button");
      if (!pressed) return;
      Array.prototype.forEach.call(group.children, function (b) { b.setAttribute("aria-pressed", String(b === pressed)); });
      if (!exists(chosen("kind") + "-" + chosen("bins"))) {
        var first = page.querySelector('#diagrams [data-variant^="' + chosen("kind") + '-"]').dataset.variant.split("-")[1];
        all('[data-switch="bins"] button').forEach(function (b) { b.setAttribute("aria-pressed", String(b.value === first)); });
      }
      showBins();
    });
  });
  if (switches.length) showBins();

  // Operating point: dragged point, slider and read-out are one.
  var curve = data.coverage, slider = page.getElementById("point");
  function put(name, text) { page.querySelector('[data-out="' + name + '"]').textContent = text; }
  function promise(k) {
    var box = page.querySelector('[data-out="promise"]'), best = null;
    if (curve.promise[k] !== null) best = curve.promises[curve.promise[k]];
    else curve.promises.forEach(function (p) { if (p.threshold !== null && p.threshold <= curve.threshold[k] && (!best || p.risk < best.risk)) best = p; });
    box.textContent = "";
    if (!best) {
      box.textContent = curve.promises.some(function (p) { return p.threshold !== null; })
        ? "No error rate is promised for so low a threshold."
        : "No error rate is promised: no threshold was chosen on validation data.";
      return;
    }
    var strong = page.createElement("b");
    strong.textContent = "At most " + best.words + " wrong";
    box.append(strong, " was promised, with " + percent(best.confidence, 0) + " confidence, for new " + curve.unit +
      " of the same kind accepted at the ready-made threshold " + fixed(best.threshold, 3) + ".");
  }
  function openPoint(threshold) {
    var box = page.getElementById("open-point");
    box.hidden = !explored || threshold === null;
    if (box.hidden) return;
    // As `just_below`: a threshold accepts what is at or above it, and is some sample's own confidence.
    var edge = threshold - Math.max(2e-7 * (1 - threshold), 2e-16), start = "/?" + box.dataset.whose + "&confidence=";
    var views = { accepted: edge + "..", errors: edge + "..&outcome=wrong", aside: ".." + edge };
    Object.keys(views).forEach(function (name) { box.querySelector('[data-open="' + name + '"]').href = start + views[name]; });
  }
  function showPoint() {
    var k = +slider.value, coverage = curve.coverage[k], risk = curve.risk[k];
    put("threshold", curve.threshold[k] === null ? "–" : fixed(curve.threshold[k], 3));
    put("coverage", percent(coverage, 1));
    put("risk", percent(risk, 1));
    put("spared", whole(curve.errors - coverage * risk * curve.n) + " of " + whole(curve.errors));
    var interval = curve.low[k] !== null && curve.high[k] !== null;
    page.querySelector('[data-optional="interval"]').hidden = !interval;
    if (interval) put("interval", fixed(100 * curve.low[k], 1) + "–" + percent(curve.high[k], 1));
    promise(k);
    openPoint(curve.threshold[k]);
    slider.setAttribute("aria-valuetext", percent(coverage, 1) + " accepted, " + percent(risk, 1) + " wrong");
    all(".op").forEach(function (point) {
      var d = point.dataset, x = +d.x0 + coverage * (d.x1 - d.x0);
      var y = Math.max(+d.y1, +d.y0 + risk / curve.top * (d.y1 - d.y0));
      point.querySelector("line").setAttribute("transform", "translate(" + x + " 0)");
      Array.prototype.forEach.call(point.querySelectorAll("circle"), function (c) { c.setAttribute("cx", x); c.setAttribute("cy", y); });
    });
  }
  function nearest(values, wanted) {
    var best = 0;
    values.forEach(function (v, k) { if (Math.abs(v - wanted) < Math.abs(values[best] - wanted)) best = k; });
    return best;
  }
  if (curve && slider) {
    slider.addEventListener("input", showPoint);
    all(".rcs").forEach(function (svg) {
      var held = false;
      function move(event) {
        if (!held) return;
        var at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
        var d = svg.querySelector(".op").dataset;
        slider.value = nearest(curve.coverage, (at.x - d.x0) / (d.x1 - d.x0));
        showPoint();
      }
      svg.addEventListener("pointerdown", function (event) { held = true; svg.setPointerCapture(event.pointerId); move(event); });
      svg.addEventListener("pointermove", move);
      ["pointerup", "pointercancel"].forEach(function (name) { svg.addEventListener(name, function () { held = false; }); });
    });
    all(".jump").forEach(function (link) {
      link.disabled = false; // without scripts it is a number
      link.addEventListener("click", function () {
        slider.value = curve.promise.indexOf(+link.dataset.promise);
        showPoint();
        slider.scrollIntoView({ block: "nearest" });
      });
    });
    showPoint();
  }

  // Sortable tables: a click on a head sorts by it, numbers by size, a second click the other way.
  function rank(cell) {
    var text = cell ? cell.textContent.trim().replace(/\u2212/g, "-").replace(/,/g, "") : "";
    var number = parseFloat(text);
    return isNaN(number) ? text.toLowerCase() : number;
  }
  all("[data-sortable]").forEach(function (table) {
    var heads = Array.prototype.slice.call(table.tHead.rows[0].cells), body = table.tBodies[0];
    heads.forEach(function (head, column) {
      var button = page.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.textContent = head.textContent;
      head.textContent = "";
      head.append(button);
      button.addEventListener("click", function () {
        var down = head.getAttribute("aria-sort") !== "descending";
        heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        Array.prototype.slice.call(body.rows).sort(function (a, b) {
          var x = rank(a.cells[column]), y = rank(b.cells[column]);
          if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1; // what is not a number stands last
          return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
        }).forEach(function (row) { body.append(row); });
      });
    });
  });

  // Downloads are made from what the page holds.
  function csv(rows) {
    var names = Object.keys(rows[0] || {});
    function cell(value) {
      var text = value === null || value === undefined ? "" : String(value);
      if (/^[=+@\t\r]|^-\D/.test(text)) text = "'" + text; // a spreadsheet must not take a name for a formula
      return /[",\n\r]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
    }
    return [names.join(",")].concat(rows.map(function (r) { return names.map(function (n) { return cell(r[n]); }).join(","); })).join("\n") + "\n";
  }
  all("[data-download]").forEach(function (link) {
    link.addEventListener("click", function (event) {
      event.preventDefault();
      var json = link.dataset.download === "json";
      var text = json ? JSON.stringify(data.evaluation, null, 1) : csv(data.evaluation.measurements);
      var url = URL.createObjectURL(new Blob([text], { type: json ? "application/json" : "text/csv" }));
      var out = page.createElement("a");
      out.href = url;
      out.download = link.textContent;
      out.click();
      setTimeout(function () { URL.revokeObjectURL(url); }, 1000);
    });
  });
})();
