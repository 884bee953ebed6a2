// Numbers as a pathologist writes them.

/** Millimetres, or micrometres where millimetres would only show zeros. */
export function length(mm) {
  if (mm === null || mm === undefined) return "–";
  if (mm !== 0 && mm < 0.1) return `${(mm * 1000).toFixed(0)} µm`;
  return `${mm.toFixed(mm < 10 ? 2 : 1)} mm`;
}

/** Square millimetres. */
export function area(mm2) {
  if (mm2 === null || mm2 === undefined) return "–";
  if (mm2 === 0) return "0 mm²";
  return mm2 < 0.005 ? `${(mm2 * 1e6).toFixed(0)} µm²` : `${mm2.toFixed(mm2 < 10 ? 2 : 1)} mm²`;
}

/** A share of one as per cent. */
export function share(value) {
  if (value === null || value === undefined) return "–";
  const percent = value * 100;
  return percent > 0 && percent < 1 ? "<1 %" : `${percent.toFixed(0)} %`;
}

/** A confidence from 0 to 1; never rounded up to certainty, as in the report. */
export function confidence(value) {
  if (value === null || value === undefined) return "–";
  return value >= 0.995 && value < 1 ? ">0.99" : value.toFixed(2);
}

/** A file size. */
export function bytes(count) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let size = count;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit && size < 10 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

/** A moment, which the server gives as ISO text, in the reader's own time zone. */
export function moment(text) {
  const date = new Date(text);
  const today = date.toDateString() === new Date().toDateString();
  return today
    ? date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" })
    : date.toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" });
}

/** The one or several. */
export function count(number, one, many = `${one}s`) {
  return `${number} ${number === 1 ? one : many}`;
}
