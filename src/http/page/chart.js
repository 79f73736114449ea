// The rates of the last three minutes, one above the other.
const POINTS = 180;
const WIDTH = 720;
const HEIGHT = 120;
const KINDS = ["approved", "suppressed", "dead"];
const rates = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export class Chart {
  constructor(svg, top) {
    this.svg = svg;
    this.top = top;
    this.points = [];
    this.paths = KINDS.map((kind) => {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("class", kind);
      svg.append(path);
      return path;
    });
  }

  add(point) {
    this.points.push(point);
    if (this.points.length > POINTS) this.points.shift();
    const highest = Math.max(1, ...this.points.map((at) => KINDS.reduce((sum, kind) => sum + at[kind], 0)));
    const first = POINTS - this.points.length;
    const x = (index) => (((first + index) / (POINTS - 1)) * WIDTH).toFixed(1);
    const y = (value) => (HEIGHT - (value / highest) * (HEIGHT - 4)).toFixed(1);
    let below = this.points.map(() => 0);
    this.paths.forEach((path, number) => {
      const above = this.points.map((at, index) => below[index] + at[KINDS[number]]);
      const upper = above.map((value, index) => `${x(index)},${y(value)}`);
      const lower = below.map((value, index) => `${x(index)},${y(value)}`).reverse();
      path.setAttribute("d", `M${[...upper, ...lower].join("L")}Z`);
      below = above;
    });
    this.top.textContent = `top: ${rates.format(highest)}/s`;
    this.svg.setAttribute("aria-label", `Intents a second over the last three minutes; at most ${rates.format(highest)}`);
  }
}
