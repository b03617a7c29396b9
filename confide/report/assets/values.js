(function () {
  "use strict";
  // Every mark tells its value: the nearest one under the pointer, the finger, or the arrow keys.
  var NS = "http://www.w3.org/2000/svg", REACH = 28, shown = null, owner = null;
  var box = document.createElement("div");
  box.className = "value";
  box.setAttribute("role", "status");
  box.hidden = true;
  document.body.append(box);
  // What is told belongs to a drawing: it goes when that one is drawn anew.
  document.addEventListener("pointermove", function () { if (owner && !owner.isConnected) nothing(); });
  function nothing() { box.hidden = true; shown = owner = null; }
  function place(words, spot, whose) {
    owner = whose;
    box.textContent = words;
    box.hidden = false;
    var width = box.offsetWidth, room = document.documentElement.clientWidth - width - 8;
    box.style.left = Math.max(8, Math.min(room, spot.left + spot.width / 2 - width / 2)) + scrollX + "px";
    box.style.top = Math.max(scrollY + 4, spot.top + scrollY - box.offsetHeight - 6) + "px";
  }
  // `values`: [x, y, words] of every mark, in the drawing's own units; `press`: what Enter or a click on one does.
  function tellValues(svg, values, press) {
    var at = -1, ring = document.createElementNS(NS, "circle");
    ring.setAttribute("r", 7);
    ring.setAttribute("class", "ring");
    function hide() {
      at = -1;
      ring.remove();
      if (shown === hide) nothing(); // a finger on another drawing takes the keyboard from this one
    }
    function show(k) {
      if (shown && shown !== hide) shown();
      shown = hide;
      at = k;
      ring.setAttribute("cx", values[k][0]);
      ring.setAttribute("cy", values[k][1]);
      svg.append(ring);
      place(values[k][2], ring.getBoundingClientRect(), svg);
    }
    function nearest(event) {
      var here = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      var best = -1, least = REACH * REACH;
      values.forEach(function (v, k) {
        var d = (v[0] - here.x) * (v[0] - here.x) + (v[1] - here.y) * (v[1] - here.y);
        if (d < least) { least = d; best = k; }
      });
      if (best < 0) hide(); else if (best !== at) show(best);
    }
    function follow(event) { if (at >= 0 && press) press(values[at], event); }
    if (!values.length) return;
    svg.tabIndex = 0;
    svg.addEventListener("click", function (event) { nearest(event); follow(event); });
    svg.addEventListener("pointermove", nearest);
    svg.addEventListener("pointerdown", nearest);
    svg.addEventListener("pointerleave", function (event) { if (event.pointerType === "mouse") hide(); });
    svg.addEventListener("focus", function () { if (svg.matches(":focus-visible")) show(0); });
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", function (event) {
      var step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (event.target !== svg) return;
      if (step) { event.preventDefault(); show((Math.max(at, 0) + step + values.length) % values.length); }
      if (step || (event.key === "Escape" && at >= 0)) event.stopPropagation(); // else a key would do two things
      if (event.key === "Escape") hide();
      if (event.key === "Enter") follow(event);
    });
  }
  // Where the explorer shows the report, a mark opens its samples.
  function open(value) { if (value[3] && location.pathname === "/report") location.assign("/?" + value[3]); }
  Array.prototype.forEach.call(document.querySelectorAll("svg[data-values]"), function (svg) {
    tellValues(svg, JSON.parse(svg.dataset.values), open);
  });
  // As Python writes it: what differs by noise alone is rounded alike, and a half up.
  function fixed(value, digits) { return (+value.toFixed(9)).toFixed(digits); }
  window.confideValues = { fixed: fixed, tell: tellValues, place: place, hide: function () { if (!shown) nothing(); } };
})();
