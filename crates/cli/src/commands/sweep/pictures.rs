//! Perplexity, and rank, against a setting.

use awd_lstm::HeadKind;
use plotters::prelude::*;
use program::chart::{Axis as Span, Scale};
use program::failure::Failure;
use program::picture::{self, Area, FONT, LineStyle, Picture, TEXT};
use program::statistics::mean_and_spread;

use crate::args::missing_part;
use crate::commands::sweep::cells::{self, Cell, Quantity};
use crate::commands::sweep::grid::{Axis, number};
use crate::commands::sweep::outcome::Outcome;

/// Lines that a reader can still tell apart; beyond, only the best of each head is drawn.
const MOST_LINES: usize = 10;
/// Size of a panel, in pixels.
const PANEL: (u32, u32) = (620, 460);
/// Lines are set apart along the axis by this share of it, so that their ranges do not hide one another.
const APART: f64 = 0.008;

/// One panel of perplexities against a setting, and beside it one of ranks where there are any.
pub struct AxisPicture {
    title: String,
    /// The setting as the label of its axis.
    x: String,
    scale: Scale,
    ticks: Vec<f64>,
    panels: Vec<Panel>,
    /// The labels of all lines, in the order of their styles.
    labels: Vec<String>,
}

/// A quantity against the setting.
struct Panel {
    y: String,
    scale: Scale,
    lines: Vec<Line>,
}

/// A line of means, with the range over seeds.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    head: HeadKind,
    label: String,
    points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    x: f64,
    mean: f64,
    low: f64,
    high: f64,
    /// Mean perplexity of the validation text, by which it is chosen from others.
    valid: f64,
}

impl AxisPicture {
    /// The picture against a setting of numbers; none as long as there are not two of them.
    pub fn new(outcomes: &[Outcome], axis: &Axis) -> Option<Self> {
        let mut ticks: Vec<f64> =
            outcomes.iter().filter_map(|outcome| number(outcome.setting(&axis.flag)?)).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        if ticks.len() < 2 {
            return None;
        }
        let tested = cells::all_have(outcomes, cells::test_ppl);
        let finetuned = cells::all_have(outcomes, cells::finetuned_valid_ppl);
        let (what, ppl): (&str, Quantity) = match (tested, finetuned) {
            (true, false) => ("Test perplexity", cells::test_ppl),
            (true, true) => ("Test perplexity after finetuning", cells::final_test_ppl),
            (false, false) => ("Validation perplexity", cells::valid_ppl),
            (false, true) => ("Validation perplexity after finetuning", cells::chosen_by),
        };
        let cells = Cell::all(outcomes);
        let ends = (ticks[0], ticks[ticks.len() - 1]);
        let lines = |of: Quantity| {
            let lines = lines(&cells, &axis.flag, ends, of);
            let best = lines.len() > MOST_LINES;
            (if best { best_of_each_head(&lines) } else { lines }, best)
        };
        let (of_ppl, best) = lines(ppl);
        let mut panels = vec![Panel::new(what.to_lowercase(), of_ppl)];
        if let Some(rank) = outcomes.iter().find_map(|outcome| outcome.rank.as_ref()) {
            panels.push(Panel::new(format!("rank of {} contexts", rank.rank_contexts), lines(cells::rank).0));
        }
        let over = seeds(&cells);
        let of = if best { ", best of the other settings by validation" } else { "" };
        let and = if panels.len() > 1 { " and rank" } else { "" };
        let mut labels: Vec<String> = vec![];
        for line in panels.iter().flat_map(|panel| &panel.lines) {
            if !labels.contains(&line.label) {
                labels.push(line.label.clone());
            }
        }
        let title = format!("{what}{and} against {}{over}{of}", cells::symbol(&axis.flag));
        let scale = scale_of(&ticks);
        Some(Self { title, x: on_scale(x_label(&axis.flag), scale), scale, ticks, panels, labels })
    }
}

impl Panel {
    fn new(y: String, lines: Vec<Line>) -> Self {
        let values = || lines.iter().flat_map(|line| &line.points).flat_map(|point| [point.low, point.high]);
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        let scale = if low > 0.0 && high > 3.0 * low { Scale::Logarithmic } else { Scale::Linear };
        Self { y: on_scale(y, scale), scale, lines }
    }
}

/// The label of an axis, which says so if it is logarithmic.
fn on_scale(label: String, scale: Scale) -> String {
    if scale == Scale::Logarithmic { label + " (log)" } else { label }
}

/// What a title says of the seeds.
fn seeds(cells: &[Cell]) -> String {
    let numbers = || cells.iter().map(|cell| cell.runs.len());
    match (numbers().min().unwrap_or(0), numbers().max().unwrap_or(0)) {
        (_, 0 | 1) => String::new(),
        (least, most) if least == most => format!(", mean and range of {most} seeds"),
        (_, most) => format!(", mean and range of up to {most} seeds"),
    }
}

/// A line for every head and combination of other settings, over the values of the setting `flag`.
fn lines(cells: &[Cell], flag: &str, (first, last): (f64, f64), of: Quantity) -> Vec<Line> {
    let mut lines: Vec<Line> = vec![];
    for cell in cells {
        let x = cell.first().setting(flag).and_then(number);
        // A head that does not have the setting has one value for all of it; of one that has it, the value is not known.
        let any = if missing_part(cell.head(), flag).is_none() { "one" } else { "any" };
        let without = if x.is_none() { format!(" ({any} {})", cells::symbol(flag)) } else { String::new() };
        let label = cell.label(|other| other != flag) + &without;
        let xs = x.map_or_else(|| vec![first, last], |x| vec![x]);
        let valid = cell.values(cells::chosen_by);
        let valid = if valid.len() == cell.runs.len() { mean_and_spread(&valid).0 } else { f64::INFINITY };
        let range = cell.mean_and_ends(of);
        let point = |x| range.map(|(mean, [low, high])| Point { x, mean, low, high, valid });
        let points = xs.into_iter().filter_map(point);
        match lines.iter_mut().find(|line| line.label == label) {
            Some(line) => line.points.extend(points),
            None => lines.push(Line { head: cell.head(), label, points: points.collect() }),
        }
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    lines.retain(|line| !line.points.is_empty());
    lines
}

/// A line a head, with the point of the lowest validation perplexity at each value.
fn best_of_each_head(lines: &[Line]) -> Vec<Line> {
    let mut chosen: Vec<Line> = vec![];
    for line in lines {
        let Some(of_head) = chosen.iter_mut().find(|of_head| of_head.head == line.head) else {
            chosen.push(Line { label: line.head.to_string(), ..line.clone() });
            continue;
        };
        for point in &line.points {
            match of_head.points.iter_mut().find(|other| other.x == point.x) {
                Some(other) if point.valid < other.valid => *other = *point,
                Some(_) => {}
                None => of_head.points.push(*point),
            }
        }
        of_head.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    chosen
}

/// The label of the axis of a setting.
fn x_label(flag: &str) -> String {
    match flag {
        "d-embedding" => "d, width of the embedding".into(),
        "components" => "K, components of a mixture".into(),
        "batch" => "batch, text streams".into(),
        "bptt" => "bptt, time steps".into(),
        "knots" => "knots of the PLIF".into(),
        flag => cells::symbol(flag).replace('-', " "),
    }
}

/// Logarithmic where the values are spread by factors rather than by steps.
fn scale_of(values: &[f64]) -> Scale {
    let (first, last) = (values[0], values[values.len() - 1]);
    if first <= 0.0 {
        return Scale::Linear;
    }
    if values.len() == 2 {
        return if last / first >= 8.0 { Scale::Logarithmic } else { Scale::Linear };
    }
    let unevenness = |place: fn(f64) -> f64| {
        let steps: Vec<f64> = values.windows(2).map(|pair| place(pair[1]) - place(pair[0])).collect();
        let (mean, spread) = mean_and_spread(&steps);
        spread / mean
    };
    // A little unevenness is rounding, as in 100, 316, 1000.
    if unevenness(f64::ln) + 0.05 < unevenness(|value| value) { Scale::Logarithmic } else { Scale::Linear }
}

impl Picture for AxisPicture {
    fn size(&self) -> (u32, u32) {
        let widest = self.labels.iter().map(|label| label.chars().count()).max().unwrap_or(0) as u32;
        // Beside the panels is the legend.
        (PANEL.0 * self.panels.len() as u32 + 90 + 8 * widest, PANEL.1)
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Failure> {
        let area = area.titled(&self.title, (FONT, picture::CAPTION))?;
        let (panels, legend) = area.split_horizontally(PANEL.0 * self.panels.len() as u32);
        let areas = panels.split_evenly((1, self.panels.len()));
        for (panel, area) in self.panels.iter().zip(&areas) {
            self.draw_panel(panel, area)?;
        }
        // A chart without axes or points, for its legend.
        let mut chart = ChartBuilder::on(&legend).margin(12).build_cartesian_2d(0.0..1.0, 0.0..1.0)?;
        for (index, label) in self.labels.iter().enumerate() {
            picture::line(&mut chart, &[], index, label)?;
        }
        picture::legend(&mut chart, SeriesLabelPosition::UpperLeft)
    }
}

impl AxisPicture {
    fn draw_panel(&self, panel: &Panel, area: &Area<'_>) -> Result<(), Failure> {
        let points = || panel.lines.iter().flat_map(|line| &line.points);
        let axis = || Span::new(self.scale, self.ticks.iter().copied());
        let span = axis();
        let x = if self.ticks.len() <= 12 { axis().with_ticks(self.ticks.clone()) } else { axis() };
        let ranged = points().any(|point| point.low < point.high);
        let y = Span::new(panel.scale, points().flat_map(|point| [point.low, point.high]));
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(46)
            .y_label_area_size(72)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .label_style((FONT, TEXT))
            .light_line_style(WHITE)
            .x_labels(12)
            .y_labels(8)
            .x_label_formatter(&|value| tick(*value))
            .x_desc(&self.x)
            .y_desc(&panel.y)
            .draw()?;
        let middle = (self.labels.len() as f64 - 1.0) / 2.0;
        for line in &panel.lines {
            let index = self.labels.iter().position(|label| *label == line.label).unwrap_or(0);
            let apart = if ranged { (index as f64 - middle) * APART } else { 0.0 };
            let style = LineStyle::of(index, &line.label).color;
            let place = |x: f64| span.moved(x, apart);
            for point in line.points.iter().filter(|point| point.low < point.high) {
                let ends = [point.low, point.high].map(|y| (place(point.x), y));
                chart.draw_series([PathElement::new(ends, style.stroke_width(1))])?;
            }
            let means: Vec<(f64, f64)> =
                line.points.iter().map(|point| (place(point.x), point.mean)).collect();
            picture::line(&mut chart, &means, index, &line.label)?;
        }
        Ok(())
    }
}

/// A value of a setting at its tick.
fn tick(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{}M", picture::tick(value / 1e6)),
        size if size >= 1e4 => format!("{}k", picture::tick(value / 1e3)),
        _ => picture::tick(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sweep::outcome::Rank;
    use crate::commands::sweep::table::tests::outcome;

    /// The picture against two widths of the embedding.
    fn against_d(outcomes: &[Outcome]) -> Option<AxisPicture> {
        AxisPicture::new(outcomes, &Axis::new("d-embedding", ["8", "16"]))
    }

    /// The means of the first line of a panel.
    fn means(panel: &Panel) -> Vec<f64> {
        panel.lines[0].points.iter().map(|point| point.mean).collect()
    }

    #[test]
    fn a_line_a_head_with_means_and_ranges() {
        let by_d = |d, seed, ppl| outcome(HeadKind::Mos, &[("d-embedding", d)], seed, ppl);
        let outcomes = [
            by_d("16", 1, 30.0),
            by_d("8", 1, 40.0),
            by_d("8", 2, 44.0),
            outcome(HeadKind::Softmax, &[], 1, 50.0),
        ];
        let picture = against_d(&outcomes).unwrap();
        let lines = &picture.panels[0].lines;
        assert_eq!(lines[0].points[0], Point { x: 8.0, mean: 42.0, low: 40.0, high: 44.0, valid: 43.0 });
        assert_eq!(lines[0].points[1], Point { x: 16.0, mean: 30.0, low: 30.0, high: 30.0, valid: 31.0 });
        assert_eq!((lines[1].points.len(), lines[1].points[1].x), (2, 16.0));
        assert_eq!(picture.labels, ["mos", "softmax (one d)"]);
        assert_eq!(picture.title, "Test perplexity against d, mean and range of up to 2 seeds");
        assert_eq!(picture.panels.len(), 1);
        assert!(against_d(&outcomes[1..]).is_none());
    }

    #[test]
    fn ranks_are_beside_and_what_was_not_tested_is_validated() {
        let ranked = |k: &str, rank| {
            let mut outcome = outcome(HeadKind::Mos, &[("components", k)], 1, 30.0);
            outcome.rank = Some(Rank { rank, rank_contexts: 500, rank_precision: "f64".into() });
            outcome.trained.as_mut().unwrap().test_ppl = None;
            outcome
        };
        let outcomes = [ranked("3", 40), ranked("5", 400)];
        let picture = AxisPicture::new(&outcomes, &Axis::new("components", ["3", "5"])).unwrap();
        assert_eq!(picture.panels[0].y, "validation perplexity");
        assert_eq!(picture.panels[1].y, "rank of 500 contexts (log)");
        assert_eq!(means(&picture.panels[1]), [40.0, 400.0]);
        assert!(picture.title.starts_with("Validation perplexity and rank against K"), "{}", picture.title);
        assert!(picture.size().0 > 2 * PANEL.0);
    }

    #[test]
    fn of_many_lines_the_best_of_each_head_are_drawn() {
        let of = |k: u32, d: u32| {
            let [of_d, of_k] = [d, k].map(|value| value.to_string());
            let settings = [("d-embedding", of_d.as_str()), ("components", of_k.as_str())];
            outcome(HeadKind::Mos, &settings, 1, f64::from(100 - k - d))
        };
        let mut outcomes: Vec<Outcome> = (1..=12).flat_map(|k| [of(k, 8), of(k, 16)]).collect();
        let picture = against_d(&outcomes).unwrap();
        let lines = &picture.panels[0].lines;
        assert_eq!((lines.len(), lines[0].label.as_str()), (1, "mos"));
        assert_eq!(means(&picture.panels[0]), [80.0, 72.0]);
        assert!(picture.title.ends_with("best of the other settings by validation"), "{}", picture.title);
        // The test text chooses nothing.
        for outcome in outcomes.iter_mut().filter(|outcome| outcome.setting("components") == Some("12")) {
            outcome.trained.as_mut().unwrap().valid_ppl = 1000.0;
        }
        assert_eq!(means(&against_d(&outcomes).unwrap().panels[0]), [81.0, 73.0]);
        assert_eq!(against_d(&outcomes[..6]).unwrap().panels[0].lines[2].label, "mos, K 3");
    }

    #[test]
    fn what_was_finetuned_is_drawn_as_it_ended() {
        let tuned = |k: &str, ppl: f64| {
            let of = |ppl| outcome(HeadKind::Mos, &[("components", k)], 1, ppl);
            Outcome { finetuned: of(ppl - 5.0).trained, ..of(ppl) }
        };
        let mut outcomes = [tuned("3", 40.0), tuned("5", 30.0)];
        let drawn = |outcomes: &[Outcome]| {
            let picture = AxisPicture::new(outcomes, &Axis::new("components", ["3", "5"])).unwrap();
            (picture.panels[0].y.clone(), means(&picture.panels[0]))
        };
        assert_eq!(drawn(&outcomes), ("test perplexity after finetuning".into(), vec![35.0, 25.0]));
        outcomes[1].finetuned = None;
        assert_eq!(drawn(&outcomes), ("test perplexity".into(), vec![40.0, 30.0]));
    }

    #[test]
    fn geometric_values_have_a_logarithmic_axis() {
        for values in
            [[8.0, 16.0, 32.0, 64.0].as_slice(), &[1e-3, 1e-2, 1e-1], &[100.0, 316.0, 1000.0], &[1.0, 10.0]]
        {
            assert_eq!(scale_of(values), Scale::Logarithmic, "{values:?}");
        }
        for values in
            [[3.0, 5.0, 10.0, 15.0, 20.0].as_slice(), &[0.0, 1.0, 10.0], &[5.0, 6.0], &[0.1, 0.2, 0.3]]
        {
            assert_eq!(scale_of(values), Scale::Linear, "{values:?}");
        }
        assert_eq!([0.1, 64.0, 20_000.0, 1_960_000.0].map(tick), ["0.1", "64", "20k", "1.96M"]);
    }
}
