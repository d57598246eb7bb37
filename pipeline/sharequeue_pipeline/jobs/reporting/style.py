"""How a report looks: one style sheet for phones, desks, paper, light and dark. It loads nothing."""

from typing import Final

STYLE: Final = """
:root{--page:#f4f6f9;--card:#fff;--ink:#131920;--soft:#55606e;--line:#dfe4ea;--grid:#e8ecf1;--gap:#e9edf2;
--produced:#2f6fe4;--accepted:#0d9b76;--released:#c98f00;--expired:#e4690a;--rejected:#d0304a;
--p50:#0d9b76;--p90:#2f6fe4;--p99:#8a4fd0;--bad:#b81f3a;--bad-on:#fdeaed;--warn:#8a5a00;--warn-on:#fdf3dc;--good:#0a7257;--good-on:#e2f5ef}
@media(prefers-color-scheme:dark){:root{--page:#0e1218;--card:#161b23;--ink:#e7ebf0;--soft:#98a3b1;--line:#272f3a;--grid:#232a34;
--gap:#1e2530;--produced:#6c9dff;--accepted:#3cc9a0;--released:#e9bd45;--expired:#ff9650;--rejected:#ff6b80;
--p50:#3cc9a0;--p90:#6c9dff;--p99:#bd93f5;--bad:#ff8c9c;--bad-on:#35171e;--warn:#f0c766;--warn-on:#322710;--good:#5bd6b0;--good-on:#10302a}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;
font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
main{max-width:74rem;margin:0 auto;padding:clamp(1rem,4vw,2.5rem)}
h1{font-size:clamp(1.5rem,5vw,2.1rem);line-height:1.15;letter-spacing:-.02em;margin:0}
h2{font-size:1.15rem;line-height:1.3;letter-spacing:-.01em;margin:0}
h3{font-size:1rem;margin:1.2rem 0 .4rem}
p,ul,ol,dl,figure{margin:0;padding:0}
ul,ol{list-style:none}
bdi{unicode-bidi:isolate}
.lead{color:var(--soft);margin-top:.35rem}
.card{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:clamp(1rem,3vw,1.5rem);margin-top:1.1rem;min-width:0}
.about{color:var(--soft);font-size:.875rem;margin:.2rem 0 1rem}
.pair{display:grid;grid-template-columns:minmax(0,1fr);gap:0 1.1rem}
@media(min-width:60rem){.pair{grid-template-columns:minmax(0,1fr) minmax(0,1fr)}}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.7rem;margin-top:1.4rem}
.tile{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:.85rem 1rem}
.tile dt{color:var(--soft);font-size:.8125rem}
.tile dd{margin:0}
.tile .figure{font-size:1.65rem;line-height:1.25;font-weight:650;letter-spacing:-.02em;white-space:nowrap}
.tile .beside{color:var(--soft);font-size:.8125rem;line-height:1.35}
.tile.bad .figure{color:var(--bad)}
.state{display:flex;gap:.7rem;padding:.75rem 1rem;border-radius:12px;margin-top:1.1rem;font-weight:550}
.state.good{background:var(--good-on);color:var(--good)}
.found li{display:grid;grid-template-columns:auto minmax(0,1fr);gap:.7rem;padding:.6rem 0;border-top:1px solid var(--line)}
.found li:first-child{border-top:0;padding-top:.2rem}
.found li:last-child{padding-bottom:0}
.mark{font-size:.75rem;font-weight:650;border-radius:99px;padding:.1rem 0;height:max-content;margin-top:.12rem;width:3.9rem;text-align:center}
.mark.bad{background:var(--bad-on);color:var(--bad)}
.mark.warn{background:var(--warn-on);color:var(--warn)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.8125rem;color:var(--soft);margin-bottom:.9rem}
.key{display:inline-block;width:.7rem;height:.7rem;border-radius:3px;margin-right:.4rem;background:currentColor}
.plot{display:grid;grid-template:14rem 2.5rem/3.9rem minmax(0,1fr);font-size:.75rem;color:var(--soft)}
.small .plot{grid-template-rows:8rem 2.5rem}
.y{position:relative}
.y span{position:absolute;right:.6rem;transform:translateY(50%);white-space:nowrap}
.area{position:relative}
.x{position:relative;grid-column:2}
.x span{position:absolute;top:.3rem;white-space:nowrap;padding-left:.3rem;border-left:1px solid var(--line);line-height:1.3}
.x i{display:block;font-style:normal;font-weight:600}
@media(max-width:40rem){.x .less{display:none}.plot{grid-template:11rem 2.5rem/3.6rem minmax(0,1fr)}}
.unit{color:var(--soft);font-size:.75rem;margin-top:.35rem}
svg{display:block;width:100%;height:100%;overflow:visible}
.grid{stroke:var(--grid);stroke-width:1;vector-effect:non-scaling-stroke}
.fill{fill:currentColor}
.stroke{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;vector-effect:non-scaling-stroke}
.dots{fill:none;stroke:currentColor;stroke-width:5;stroke-linecap:round;vector-effect:non-scaling-stroke}
.hover{fill:transparent}.hover:hover{fill:var(--ink);opacity:.07}
.produced{color:var(--produced)}.accepted{color:var(--accepted)}.released{color:var(--released)}.expired{color:var(--expired)}
.rejected{color:var(--rejected)}.p50{color:var(--p50)}.p90{color:var(--p90)}.p99{color:var(--p99)}
.gap{position:absolute;inset-block:0;display:grid;place-items:center;overflow:hidden;pointer-events:auto;
background:repeating-linear-gradient(135deg,var(--gap) 0 5px,transparent 5px 10px)}
.gap span{background:var(--card);border-radius:99px;padding:0 .6rem;white-space:nowrap}
.bars li{display:grid;grid-template-columns:minmax(4.2rem,11rem) minmax(0,1fr) 8.6rem;gap:.2rem .8rem;align-items:center;font-size:.875rem}
.bars .name{padding:.3rem 0;line-height:1.3}
.bars .value{color:var(--soft);font-size:.8125rem;line-height:1.3;display:flex;flex-wrap:wrap;gap:0 .4rem;align-items:baseline}
.bars .value>*{white-space:nowrap}.bars .value b{color:var(--ink);font-size:.875rem}
.track{position:relative;align-self:stretch;min-height:1.9rem}
.bar{position:absolute;left:0;top:50%;height:1.2rem;margin-top:-.6rem;min-width:2px;border-radius:0 4px 4px 0;background:currentColor}
.rule{position:absolute;top:0;bottom:0;width:1px;background:var(--grid)}
.scale .track{min-height:1.2rem}
.tick{position:absolute;font-size:.75rem;color:var(--soft);transform:translateX(-50%);white-space:nowrap}
.tick:first-child{transform:none}.names .tick:last-child{transform:translateX(-100%)}
.bars.brief li{grid-template-columns:3.2rem minmax(0,1fr) 8.6rem}
@media(max-width:40rem){.bars li{grid-template-columns:4.2rem minmax(0,1fr) 5.4rem}.bars.brief li{grid-template-columns:2.4rem minmax(0,1fr) 5.4rem}}
.bars.names li{grid-template-columns:minmax(0,1fr) max-content}
.bars.names .name{padding:.3rem 0 0}.bars.names .track{grid-row:2;grid-column:1/3;min-height:1.3rem}
.bars.names .value{justify-content:end;align-self:end}.bars.names .scale>.name,.bars.names .scale>.value{display:none}
.bars.names .bar{top:.1rem;height:.7rem;margin:0}
@media(max-width:40rem){.bars.names .value{flex-direction:column;align-items:end}}
.of{color:var(--soft)}
table{width:100%;border-collapse:collapse;font-size:.875rem}
th{color:var(--soft);font-weight:500;font-size:.8125rem;text-align:left;vertical-align:bottom;padding:0 .7rem .45rem 0}
td{padding:.55rem .7rem .55rem 0;border-top:1px solid var(--line);vertical-align:top}
.n{text-align:right;white-space:nowrap}
td.name,th.name{width:24%}
tr.topic td{padding-bottom:.35rem}
tr.topic .name{font-weight:600}
tr.group td{border-top:0;padding-top:.2rem;padding-bottom:.5rem}
tr.group .name{padding-left:1.1rem}
.spark{width:6.5rem;height:1.5rem}
td .none{color:var(--soft)}
td.bad{color:var(--bad)}td.warn{color:var(--warn)}
@media(max-width:48rem){
table.cards,.cards tbody{display:block}.cards thead{display:none}
.cards tr{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:.3rem .8rem;padding:.7rem 0}
.cards tr.topic{border-top:1px solid var(--line)}.cards tr.group{padding-left:.8rem;border-left:3px solid var(--line);margin-bottom:.6rem;padding-block:.1rem}
.cards td,.cards tr.group td{display:block;border:0;padding:0;text-align:left;white-space:normal}
.cards td.name,.cards td.wide{grid-column:1/-1;width:auto}.cards tr.topic td.empty,.cards tr.group td.empty{display:none}
.cards td[data-name]::before{content:attr(data-name);display:block;color:var(--soft);font-size:.75rem;line-height:1.3}
.cards .spark{width:100%;height:2rem}}
details{border-top:1px solid var(--line)}
details:last-of-type{border-bottom:1px solid var(--line)}
summary{cursor:pointer;padding:.65rem 0;display:flex;flex-wrap:wrap;gap:.1rem .8rem;align-items:baseline;list-style:none}
summary::-webkit-details-marker{display:none}
summary::before{content:"›";color:var(--soft);width:.6rem;transition:transform .15s;display:inline-block}
details[open]>summary::before{transform:rotate(90deg)}
summary:focus-visible{outline:2px solid var(--produced);outline-offset:2px;border-radius:6px}
summary .name{flex:1 1 12rem;font-weight:600;min-width:0}
summary .count{color:var(--soft);font-size:.875rem;min-width:0}
.inside{padding:.2rem 0 1.1rem 1.4rem}
@media(max-width:40rem){.inside{padding-left:0}}
.inside h3{font-size:.875rem;margin:.9rem 0 .4rem}
.facts{display:flex;flex-wrap:wrap;gap:.5rem 1.6rem;font-size:.875rem}
.facts dt{color:var(--soft);font-size:.75rem}.facts dd{margin:0;font-weight:550}
.sample{border-left:3px solid var(--line);padding:.1rem 0 .1rem .8rem;margin-top:.8rem;font-size:.8125rem}
.sample p{color:var(--soft)}
code{font:.8125rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
.sample code{display:block;background:var(--page);border-radius:8px;padding:.5rem .7rem;margin-top:.35rem}
.empty-page{text-align:center;padding:3.5rem 1rem}
.empty-page p{color:var(--soft);max-width:34rem;margin:.5rem auto 0}
footer{color:var(--soft);font-size:.8125rem;margin-top:1.6rem}
footer li{margin-top:.3rem}
@media print{body{background:#fff;font-size:12px}.card,.tile,details{break-inside:avoid}main{padding:0}}
"""
