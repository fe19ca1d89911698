//! A chart of lines, both axes logarithmic, as SVG.

use std::fmt::Write;

/// Colours of the lines. Each can be told from the others on white, which is drawn below, so that the chart is legible on any page.
const COLORS: [&str; 9] =
    ["#0b6e4f", "#1f6fb2", "#8e44ad", "#c0392b", "#b9770e", "#5d6d7e", "#117a8b", "#784212", "#2c3e50"];

const WIDTH: f64 = 760.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 500.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 340.0;
/// Least distance of the names of two lines.
const NAME_DISTANCE: f64 = 17.0;

/// Unit of the vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Micros,
    PerSecond,
}

impl Unit {
    /// Returns the label of a power of ten.
    fn label(self, power: i32) -> String {
        match (self, power) {
            (Self::Micros, ..3) => format!("{} us", 10_f64.powi(power)),
            (Self::Micros, 3..6) => format!("{} ms", 10_f64.powi(power - 3)),
            (Self::Micros, _) => format!("{} s", 10_f64.powi(power - 6)),
            (Self::PerSecond, _) => number(10_f64.powi(power)),
        }
    }
}

/// A line of the chart.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    /// Number of the library, which decides the colour.
    pub(super) number: usize,
    /// Whether it is one of our stores, which are drawn thicker.
    pub(super) is_ours: bool,
    /// Points by rising x, all greater than zero.
    pub(super) points: Vec<(f64, f64)>,
}

/// A chart.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: &'static str,
    /// Name of the horizontal axis.
    pub(super) x: &'static str,
    pub(super) unit: Unit,
    pub(super) lines: Vec<Line>,
}

/// Maps values to positions on an axis.
#[derive(Clone, Copy)]
struct Axis {
    /// The logarithms at both ends.
    least: f64,
    most: f64,
    /// The positions at both ends.
    start: f64,
    end: f64,
}

impl Axis {
    fn at(self, value: f64) -> f64 {
        let part = (value.log10() - self.least) / (self.most - self.least).max(f64::MIN_POSITIVE);
        self.start + part * (self.end - self.start)
    }
}

impl Chart {
    /// Draws the chart. The same chart gives the same bytes.
    pub(super) fn svg(&self) -> String {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let logs = |of: fn(&(f64, f64)) -> f64| {
            let logs: Vec<f64> = all().map(|point| of(point).log10()).collect();
            let least = logs.iter().copied().fold(f64::INFINITY, f64::min);
            (least, logs.into_iter().fold(f64::NEG_INFINITY, f64::max))
        };
        let ((least_x, most_x), (least_y, most_y)) = (logs(|point| point.0), logs(|point| point.1));
        let x = Axis { least: least_x, most: most_x, start: LEFT, end: RIGHT };
        let y = Axis { least: least_y.floor(), most: most_y.ceil(), start: BOTTOM, end: TOP };
        let names = self.names(y);
        let height = names.iter().map(|name| name.1 + 30.0).fold(BOTTOM + 50.0, f64::max);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" font-family=\"sans-serif\" \
             font-size=\"12\" fill=\"#333\">\n<title>{} against {}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{height:.0}\" rx=\"6\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"26\" font-size=\"14\">{}</text>\n",
            escaped(self.title),
            escaped(self.x),
            escaped(self.title)
        );
        for power in y.least as i32..=y.most as i32 {
            let (at, label) = (y.at(10_f64.powi(power)), self.unit.label(power));
            put(&mut svg, format_args!("<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"#ddd\"/>"));
            let (x, y) = (LEFT - 8.0, at + 4.0);
            put(&mut svg, format_args!("<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{label}</text>"));
        }
        let mut ticks: Vec<f64> = all().map(|point| point.0).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        for tick in ticks {
            let (at, label, below) = (x.at(tick), number(tick), BOTTOM + 20.0);
            put(&mut svg, format_args!("<path d=\"M{at:.1} {BOTTOM}v5\" stroke=\"#999\"/>"));
            put(
                &mut svg,
                format_args!("<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{label}</text>"),
            );
        }
        let (middle, below) = ((LEFT + RIGHT) / 2.0, BOTTOM + 38.0);
        let name = escaped(self.x);
        put(
            &mut svg,
            format_args!("<text x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">{name}</text>"),
        );
        for line in &self.lines {
            line.draw(&mut svg, x, y);
        }
        for (line, at) in names {
            let (color, end) =
                (line.color(), line.points.last().map_or((0.0, 0.0), |end| (x.at(end.0), y.at(end.1))));
            let weight = if line.is_ours { " font-weight=\"bold\"" } else { "" };
            // A thin line leads from the end of a line to its name, wherever that found room.
            let (from, to) = (RIGHT + 6.0, RIGHT + 22.0);
            let start = end.0 + 5.0;
            put(
                &mut svg,
                format_args!(
                    "<path d=\"M{start:.1} {:.1}H{from:.1}L{to:.1} {at:.1}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"0.7\" stroke-dasharray=\"2 2\"/>",
                    end.1
                ),
            );
            let (x, y, name) = (to + 4.0, at + 4.0, escaped(&line.name));
            put(
                &mut svg,
                format_args!("<text x=\"{x}\" y=\"{y:.1}\" fill=\"{color}\"{weight}>{name}</text>"),
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Returns each line with the height of its name: that of its last point, or less far down than the name above needs.
    fn names(&self, y: Axis) -> Vec<(&Line, f64)> {
        let end = |line: &Line| line.points.last().map_or(BOTTOM, |end| y.at(end.1));
        let mut names: Vec<(&Line, f64)> = self.lines.iter().map(|line| (line, end(line))).collect();
        names.sort_by(|a, b| a.1.total_cmp(&b.1));
        // Names that would overlap move apart around the middle of their group.
        let mut groups: Vec<(f64, usize)> = Vec::new();
        for (_, at) in &names {
            groups.push((*at, 1));
            while let [.., above, below] = groups.as_slice() {
                let room = NAME_DISTANCE * (above.1 + below.1) as f64 / 2.0;
                if below.0 - above.0 >= room {
                    break;
                }
                let count = above.1 + below.1;
                let middle = (above.0 * above.1 as f64 + below.0 * below.1 as f64) / count as f64;
                groups.truncate(groups.len() - 2);
                groups.push((middle, count));
            }
        }
        let spread = groups.into_iter().flat_map(|(middle, count)| {
            (0..count).map(move |n| middle + NAME_DISTANCE * (n as f64 - (count as f64 - 1.0) / 2.0))
        });
        names.into_iter().zip(spread).map(|((line, _), at)| (line, at)).collect()
    }
}

impl Line {
    fn color(&self) -> &'static str {
        COLORS[self.number % COLORS.len()]
    }

    fn draw(&self, svg: &mut String, x: Axis, y: Axis) {
        let points: Vec<(f64, f64)> =
            self.points.iter().map(|point| (x.at(point.0), y.at(point.1))).collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let (path, color) = (path.join("L"), self.color());
        let (width, radius) = if self.is_ours { (2.5, 3.5) } else { (1.5, 2.5) };
        put(
            svg,
            format_args!("<path d=\"M{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"/>"),
        );
        for (x, y) in points {
            put(svg, format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{color}\"/>"));
        }
    }
}

fn put(svg: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(svg, "{line}");
}

/// Writes a number with commas between its thousands.
fn number(value: f64) -> String {
    let digits = format!("{value}");
    if value < 1_000.0 {
        return digits;
    }
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: usize, points: &[(f64, f64)]) -> Line {
        Line { name: format!("line <{number}>"), number, is_ours: number == 0, points: points.to_vec() }
    }

    fn chart(lines: Vec<Line>) -> Chart {
        Chart { title: "time", x: "messages", unit: Unit::Micros, lines }
    }

    /// The values of an attribute, in the order of the chart.
    fn values(svg: &str, before: &str) -> Vec<f64> {
        svg.split(before).skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn points_lie_where_the_logarithms_are() {
        let svg = chart(vec![line(0, &[(100.0, 10.0), (1_000.0, 100.0), (10_000.0, 1_000.0)])]).svg();
        assert_eq!(values(&svg, "cx=\""), [LEFT, (LEFT + RIGHT) / 2.0, RIGHT]);
        assert_eq!(values(&svg, "cy=\""), [BOTTOM, (TOP + BOTTOM) / 2.0, TOP]);
        for label in [">10 us<", ">100 us<", ">1 ms<", ">10,000<", ">messages<", "line &lt;0>"] {
            assert!(svg.contains(label), "{label}: {svg}");
        }
    }

    #[test]
    fn chart_is_the_same_each_time() {
        let chart = chart(vec![line(0, &[(1.0, 3.0), (32.0, 90.0)]), line(1, &[(1.0, 3.0), (32.0, 7.0)])]);
        assert_eq!(chart.svg(), chart.svg());
    }

    #[test]
    fn names_do_not_overlap() {
        let ends = [500.0, 510.0, 505.0, 90.0, 100.0, 95.0];
        let lines =
            ends.iter().enumerate().map(|(number, end)| line(number, &[(100.0, 50.0), (1_000.0, *end)]));
        let chart = chart(lines.collect());
        let axis = Axis { least: 1.0, most: 3.0, start: BOTTOM, end: TOP };
        let at: Vec<f64> = chart.names(axis).into_iter().map(|name| name.1).collect();
        assert_eq!(at.len(), ends.len());
        for pair in at.windows(2) {
            assert!(pair[1] - pair[0] >= NAME_DISTANCE - 1e-9, "{at:?}");
        }
    }

    #[test]
    fn everything_lies_on_the_white_ground() {
        let lines = (0..6).map(|number| line(number, &[(1.0, 1.0), (32.0, 1.0)]));
        let svg = chart(lines.collect()).svg();
        let height = values(&svg, "height=\"")[0];
        assert!(values(&svg, " y=\"").into_iter().all(|y| y > 0.0 && y < height), "{svg}");
    }

    #[test]
    fn numbers_have_commas() {
        assert_eq!(
            [1.0, 100.0, 1_000.0, 100_000.0, 1_000_000.0].map(number),
            ["1", "100", "1,000", "100,000", "1,000,000"]
        );
        assert_eq!([0, 2, 3, 6].map(|power| Unit::Micros.label(power)), ["1 us", "100 us", "1 ms", "1 s"]);
    }
}
