"""How the page of a simulation looks, light and dark."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c1f24; --dim: #5b6472; --rule: #e4e7ec; --back: #fff;
  --floor: #f4f5f7; --fault: #d92d20; --c0: #2563eb; --c1: #ea8a0b; --c2: #16a34a; --c3: #9333ea;
  --c4: #0e9aa7; --c5: #c2417c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --dim: #98a2b3; --rule: #344054;
  --back: #14171c; --floor: #1d2229; --fault: #f97066; --c0: #60a5fa; --c1: #fbbf24;
  --c2: #4ade80; --c3: #c084fc; --c4: #45d6e2; --c5: #f48fb8; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
  max-width: 980px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; border-top: 1px solid var(--rule);
  padding-top: 1.2rem; }
h3 { font-size: 1rem; font-weight: 600; margin: 1.2rem 0 .3rem; }
.note { color: var(--dim); margin: .1rem 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: .6rem;
  margin-top: 1rem; }
.tiles div { background: var(--floor); border-radius: 6px; padding: .6rem .8rem; }
.tiles b { display: block; font-size: 1.15rem; font-weight: 600;
  font-variant-numeric: tabular-nums; }
.tiles span { color: var(--dim); font-size: .85rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
th { font-weight: 500; color: var(--dim); } tbody th { color: var(--ink); white-space: nowrap; }
.figures td, .figures thead th:not(:first-child) { text-align: right; }
.figures td { white-space: nowrap; }
.waits td { overflow-wrap: anywhere; font-size: .88rem; }
.waits td:last-child { width: 50%; }
.meter { display: block; height: 4px; border-radius: 2px; background: var(--c0);
  margin: .15rem 0 0 auto; }
figure { margin: 0 0 1rem; } svg { width: 100%; height: auto; display: block; }
svg text { font-size: 12px; fill: var(--dim); }
.grid { stroke: var(--rule); } .tick { stroke: var(--dim); } .floor { fill: var(--floor); }
.line { fill: none; stroke-width: 1.5; } .line.dashed { stroke-dasharray: 5 3; }
.edged { stroke: var(--back); stroke-width: .3; }
.mark { fill: var(--fault); fill-opacity: .35; stroke: var(--fault); stroke-width: .6; }
figcaption { color: var(--dim); font-size: .85rem; }
figcaption span { margin-right: 1.2rem; white-space: nowrap; }
figcaption i { display: inline-block; width: .7rem; height: .7rem; margin-right: .35rem;
  border-radius: 2px; }
i.fault { background: var(--fault); }
i.dashed { opacity: .55; }
.line.c0 { stroke: var(--c0); } .line.c1 { stroke: var(--c1); } .line.c2 { stroke: var(--c2); }
.line.c3 { stroke: var(--c3); } .line.c4 { stroke: var(--c4); } .line.c5 { stroke: var(--c5); }
.bar.c0 { fill: var(--c0); } .bar.c1 { fill: var(--c1); } .bar.c2 { fill: var(--c2); }
.bar.c3 { fill: var(--c3); } .bar.c4 { fill: var(--c4); } .bar.c5 { fill: var(--c5); }
i.c0 { background: var(--c0); } i.c1 { background: var(--c1); } i.c2 { background: var(--c2); }
i.c3 { background: var(--c3); } i.c4 { background: var(--c4); } i.c5 { background: var(--c5); }
"""
