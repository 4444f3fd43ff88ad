package plot

// CSS is the style of the plots. The page that has them defines the variables --text, --soft (text
// that matters less), --rule (thin lines) and --accent.
const CSS = `figure.plot{margin:0 0 1.5rem;max-width:100%;break-inside:avoid}
figure.plot>figcaption{font-weight:600;margin-bottom:.25rem}
figure.plot svg{max-width:100%;height:auto;display:block}
svg text{fill:var(--soft);font-size:11px}
svg .name,svg .value text{fill:var(--text)}
svg .grid{stroke:var(--rule);stroke-width:1;fill:none}
svg .axis{stroke:var(--soft);stroke-width:1;fill:none}
svg .line{fill:none;stroke-width:1.6;stroke-linejoin:round}
svg .dot{fill-opacity:.65;stroke-width:.8}
svg .bar{fill-opacity:.75;stroke-width:.8}
svg .interval{stroke:var(--text);stroke-width:1.5;fill:none}
svg .mean{fill:var(--text)}
svg .cell{fill:var(--accent)}
svg.spark{vertical-align:middle}
svg .c0{stroke:var(--c0);fill:var(--c0)}svg .c1{stroke:var(--c1);fill:var(--c1)}svg .c2{stroke:var(--c2);fill:var(--c2)}svg .c3{stroke:var(--c3);fill:var(--c3)}
svg .c4{stroke:var(--c4);fill:var(--c4)}svg .c5{stroke:var(--c5);fill:var(--c5)}svg .c6{stroke:var(--c6);fill:var(--c6)}svg .c7{stroke:var(--c7);fill:var(--c7)}
svg path.line.line{fill:none}
svg path.c1{stroke-dasharray:7 2}svg path.c2{stroke-dasharray:2 2}svg path.c3{stroke-dasharray:8 2 2 2}svg path.c5{stroke-dasharray:5 3}svg path.c6{stroke-dasharray:1 3}svg path.c7{stroke-dasharray:10 4}
ul.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.15rem 1rem;margin:.25rem 0 0;padding:0;font-size:.8rem;color:var(--soft)}
ul.legend li::before{content:"";display:inline-block;width:1em;border-top:.45em solid;margin-right:.4em;vertical-align:.1em}
ul.legend li.c0::before{border-color:var(--c0)}ul.legend li.c1::before{border-color:var(--c1)}ul.legend li.c2::before{border-color:var(--c2)}ul.legend li.c3::before{border-color:var(--c3)}
ul.legend li.c4::before{border-color:var(--c4)}ul.legend li.c5::before{border-color:var(--c5)}ul.legend li.c6::before{border-color:var(--c6)}ul.legend li.c7::before{border-color:var(--c7)}
p.left{font-size:.8rem;color:var(--soft);margin:.25rem 0 0}
:root{--c0:#0b6bcb;--c1:#c2410c;--c2:#15803d;--c3:#9333ea;--c4:#b45309;--c5:#0e7490;--c6:#be185d;--c7:#57534e}
@media (prefers-color-scheme:dark){:root{--c0:#6cb2ff;--c1:#ff9a66;--c2:#5fd38a;--c3:#c99bff;--c4:#f0c04f;--c5:#56cfe1;--c6:#ff8fc2;--c7:#b8b2ab}}
@media print{:root{--c0:#0b6bcb;--c1:#c2410c;--c2:#15803d;--c3:#9333ea;--c4:#b45309;--c5:#0e7490;--c6:#be185d;--c7:#57534e}figure.plot *{print-color-adjust:exact}}
`
