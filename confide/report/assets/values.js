(function () {
  "use strict";
  // Every mark tells its value: the nearest one under the pointer, the finger, or the arrow keys.
  var NS = "http://www.w3.org/2000/svg", REACH = 28;
  var box = document.createElement("div");
  box.className = "value";
  box.setAttribute("role", "status");
  box.hidden = true;
  document.body.append(box);
  Array.prototype.forEach.call(document.querySelectorAll("svg[data-values]"), function (svg) {
    var values = JSON.parse(svg.dataset.values), at = -1, ring = document.createElementNS(NS, "circle");
    ring.setAttribute("r", 7);
    ring.setAttribute("class", "ring");
    function hide() { at = -1; box.hidden = true; ring.remove(); }
    function show(k) {
      at = k;
      ring.setAttribute("cx", values[k][0]);
      ring.setAttribute("cy", values[k][1]);
      svg.append(ring);
      box.textContent = values[k][2];
      box.hidden = false;
      var spot = ring.getBoundingClientRect(), width = box.offsetWidth, room = document.documentElement.clientWidth - width - 8;
      box.style.left = Math.max(8, Math.min(room, spot.left + spot.width / 2 - width / 2)) + scrollX + "px";
      box.style.top = spot.top + scrollY - box.offsetHeight - 6 + "px";
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
    // Where the explorer shows the report, a mark opens its samples.
    function follow() { if (at >= 0 && values[at][3] && location.pathname === "/report") location.assign("/?" + values[at][3]); }
    svg.tabIndex = 0;
    svg.addEventListener("click", function (event) { nearest(event); follow(); });
    svg.addEventListener("pointermove", nearest);
    svg.addEventListener("pointerdown", nearest);
    svg.addEventListener("pointerleave", function (event) { if (event.pointerType === "mouse") hide(); });
    svg.addEventListener("focus", function () { if (svg.matches(":focus-visible")) show(0); });
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", function (event) {
      var step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) { event.preventDefault(); show((Math.max(at, 0) + step + values.length) % values.length); }
      if (event.key === "Escape") hide();
      if (event.key === "Enter") follow();
    });
  });
})();
