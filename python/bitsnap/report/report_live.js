// Brings newer pages from the server of this page, as long as it answers, and asks it about tensors.
"use strict";
(() => {
  const kInterval = 1500;
  const report = globalThis.bitsnapReport;

  function say(text, isLive) {
    const badge = document.getElementById("live");
    badge.textContent = text;
    badge.classList.toggle("stopped", !isLive);
  }

  async function update() {
    if (!document.hidden) {
      try {
        const answer = await fetch("update?version=" + encodeURIComponent(report.version()));
        if (answer.status === 200) report.show(new DOMParser().parseFromString(await answer.text(), "text/html"));
        say(answer.ok ? "live" : "the server refuses to answer", answer.ok);
      } catch {
        say("the server has stopped", false);
      }
    }
    setTimeout(update, kInterval);
  }

  report.ask = async (step, role, row) => {
    const answer = await fetch("tensors?" + new URLSearchParams({ step, role, row }));
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    return found;
  };

  report.ready.then(() => setTimeout(update, kInterval));
})();
