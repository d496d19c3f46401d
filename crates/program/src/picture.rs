//! Pictures as SVG: line styles that can be told apart in black and white.

use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use runs::files::replace;

use crate::failure::Failure;

/// The font of all text, named in the picture.
pub const FONT: &str = "sans-serif";
/// Size of captions, in pixels.
pub const CAPTION: u32 = 17;
/// Size of all other text, in pixels.
pub const TEXT: u32 = 13;

/// Where pictures are drawn.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Something that can be drawn.
pub trait Picture {
    /// Width and height in pixels.
    fn size(&self) -> (u32, u32);

    /// Draws onto a white area of that size.
    ///
    /// # Errors
    /// What plotters says.
    fn draw(&self, area: &Area<'_>) -> Result<(), Failure>;
}

/// Writes `picture` as `stem.svg`, which is replaced as a whole.
///
/// # Errors
/// A file that cannot be written, or what the picture says.
pub fn save(picture: &impl Picture, stem: &Path) -> Result<(), Failure> {
    save_as(picture, &stem.with_added_extension("svg"))
}

/// [`save`] under another name.
///
/// # Errors
/// As [`save`].
pub fn save_as(picture: &impl Picture, path: &Path) -> Result<(), Failure> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, picture.size()).into_drawing_area();
        area.fill(&WHITE)?;
        picture.draw(&area)?;
        area.present()?;
    }
    Ok(replace(path, described(&text).replace(is_no_xml, "\u{fffd}").as_bytes())?)
}

/// Whether XML 1.0 has no place for a character, which the name of a folder may have.
fn is_no_xml(letter: char) -> bool {
    matches!(letter, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}')
}

/// Turns light into dark where a page is dark, and leaves the hues.
const DARK: &str = "@media (prefers-color-scheme: dark) { svg { filter: invert(1) hue-rotate(180deg); } }";

/// A picture with its caption as the title, and its other words as the description, for who hears it; and with other colours for dark
/// pages.
fn described(svg: &str) -> String {
    let texts =
        svg.split("<text").skip(1).filter_map(|part| Some(part.split_once('>')?.1.split_once("</text>")?.0));
    let mut words = texts
        .map(str::trim)
        .filter(|word| word.contains(char::is_alphabetic) && word.parse::<f64>().is_err());
    let (title, rest) = (words.next().unwrap_or_default(), words.collect::<Vec<_>>().join("; "));
    let (tag, drawing) = svg.split_once('>').unwrap_or((svg, ""));
    let tag = tag.replacen("<svg", "<svg role=\"img\"", 1);
    format!("{tag}>\n<title>{title}</title>\n<desc>{rest}</desc>\n<style>{DARK}</style>{drawing}")
}

/// How one of several lines is drawn: its own darkness, dashes and marks.
#[derive(Debug, Clone, Copy)]
pub struct LineStyle {
    /// Its colour; the colours differ in lightness too.
    pub color: RGBColor,
    /// Lengths of dash and gap in pixels; none for an unbroken line.
    dashes: Option<(i32, i32)>,
    mark: Mark,
}

#[derive(Debug, Clone, Copy)]
enum Mark {
    Disc,
    Ring,
    Square,
    Triangle,
    Cross,
}

/// The colours of heads; the first of them are those of other lines, too.
const HEADS: [(&str, RGBColor); 10] = [
    ("softmax", RGBColor(0, 0, 0)),
    ("mos", RGBColor(0, 110, 180)),
    ("plif", RGBColor(205, 85, 0)),
    ("moc", RGBColor(0, 130, 90)),
    ("sigsoftmax", RGBColor(160, 90, 150)),
    ("mos-plif", RGBColor(120, 70, 20)),
    ("doc", RGBColor(190, 20, 60)),
    ("mixtape", RGBColor(0, 160, 170)),
    ("gss", RGBColor(130, 130, 0)),
    ("adaptive", RGBColor(110, 110, 110)),
];
/// Lines until colours start over.
const ROUND: usize = 5;

impl LineStyle {
    /// Styles that can be told apart; they start over after ten.
    pub fn nth(index: usize) -> Self {
        const MARKS: [Mark; ROUND] = [Mark::Disc, Mark::Ring, Mark::Square, Mark::Triangle, Mark::Cross];
        const DASHES: [Option<(i32, i32)>; 4] = [None, Some((7, 4)), Some((2, 3)), Some((12, 3))];
        let round = index / ROUND % 2;
        Self {
            color: HEADS[index % ROUND].1,
            dashes: DASHES[(index + round) % DASHES.len()],
            mark: MARKS[(index + 2 * round) % ROUND],
        }
    }

    /// The same in the colour of the head that `label` begins with, which it has in every picture.
    pub fn of(index: usize, label: &str) -> Self {
        let end = label.find(|letter: char| !letter.is_alphabetic() && letter != '-').unwrap_or(label.len());
        let name = label[..end].trim_end_matches('-');
        let found = HEADS.iter().find(|(head, _)| name == *head);
        Self { color: found.map_or(Self::nth(index).color, |(_, color)| *color), ..Self::nth(index) }
    }
}

/// Draws `points` as a line with marks in the style `index`, with `label` in the chart's legend.
///
/// Marks are thinned out where there are many points.
///
/// # Errors
/// What plotters says.
pub fn line<'a, 'b: 'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>,
    points: &[(X::ValueType, Y::ValueType)],
    index: usize,
    label: &str,
) -> Result<(), Failure>
where
    X: Ranged<ValueType: Clone + 'static>,
    Y: Ranged<ValueType: Clone + 'static>,
{
    let style = LineStyle::of(index, label);
    // Where they are many, one in so many.
    let every = points.len().div_ceil(40).max(1);
    match style.dashes {
        None => chart.draw_series([PathElement::new(points.to_vec(), style.color.stroke_width(2))])?,
        Some((dash, gap)) => chart.draw_series([DashedPathElement::new(
            points.iter().cloned(),
            dash,
            gap,
            style.color.stroke_width(2),
        )])?,
    };
    let marked = points.iter().step_by(every).cloned();
    chart
        .draw_series(marked.map(|place| EmptyElement::at(place) + mark(style, (0, 0))))?
        .label(label)
        .legend(move |(x, y)| {
            let (dash, gap) = style.dashes.unwrap_or((24, 0));
            EmptyElement::at((0, 0))
                + DashedPathElement::new([(x, y), (x + 24, y)], dash, gap, style.color.stroke_width(2))
                + mark(style, (x + 12, y))
        });
    Ok(())
}

/// A mark at `center`, in pixels.
fn mark<'b>(style: LineStyle, (x, y): (i32, i32)) -> DynElement<'static, SVGBackend<'b>, (i32, i32)> {
    let (full, open) = (style.color.filled(), style.color.stroke_width(1));
    match style.mark {
        Mark::Disc => Circle::new((x, y), 3, full).into_dyn(),
        Mark::Ring => Circle::new((x, y), 4, open).into_dyn(),
        Mark::Square => Rectangle::new([(x - 3, y - 3), (x + 3, y + 3)], full).into_dyn(),
        Mark::Triangle => Polygon::new([(x, y - 4), (x + 4, y + 3), (x - 4, y + 3)], full).into_dyn(),
        Mark::Cross => PathElement::new(
            [(x - 4, y - 4), (x + 4, y + 4), (x, y), (x - 4, y + 4), (x + 4, y - 4)],
            style.color.stroke_width(2),
        )
        .into_dyn(),
    }
}

/// Draws the legend of the chart's labelled series.
///
/// # Errors
/// What plotters says.
pub fn legend<'a, 'b: 'a, CT: CoordTranslate>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, CT>,
    position: SeriesLabelPosition,
) -> Result<(), Failure> {
    chart
        .configure_series_labels()
        .position(position)
        .legend_area_size(32)
        .margin(8)
        .label_font((FONT, TEXT))
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.5))
        .draw()?;
    Ok(())
}

/// Height of a line of [`key`], in pixels.
pub const KEY_LINE: u32 = 18;

/// Draws what lines of these labels look like, in the styles from 0 on, one below the other at the top of `area`, where it covers no
/// data. Returns the area below.
///
/// # Errors
/// What plotters says.
pub fn key<'b>(area: &Area<'b>, labels: &[&str]) -> Result<Area<'b>, Failure> {
    let height = KEY_LINE as i32;
    let (above, below) = area.split_vertically(height * labels.len() as i32);
    for (index, label) in labels.iter().enumerate() {
        let (style, y) = (LineStyle::of(index, label), height * index as i32 + height / 2);
        let (dash, gap) = style.dashes.unwrap_or((24, 0));
        above.draw(&DashedPathElement::new([(72, y), (96, y)], dash, gap, style.color.stroke_width(2)))?;
        above.draw(&(EmptyElement::at((84, y)) + mark(style, (0, 0))))?;
        above.draw(&Text::new(label.to_string(), (104, y - TEXT as i32 / 2), (FONT, TEXT)))?;
    }
    Ok(below)
}

/// Round values between `low` and `high`, both above 0, for the ticks of a logarithmic axis.
pub fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    // From coarse to fine: the first set of which at least four lie in the range.
    const SETS: [&[f64]; 4] = [
        &[1.0],
        &[1.0, 2.0, 5.0],
        &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
        &[
            1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.2, 2.5, 2.8, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0,
            7.0, 8.0, 9.0,
        ],
    ];
    // Finite numbers have no others.
    let decades = (low.log10().floor() as i32).max(-308)..=(high.log10().ceil() as i32).min(308);
    let ticks = |set: &[f64]| -> Vec<f64> {
        let all = decades.clone().flat_map(|decade| set.iter().map(move |x| x * 10f64.powi(decade)));
        all.filter(|tick| (low..=high).contains(tick)).collect()
    };
    let found = SETS.iter().map(|set| ticks(set)).find(|ticks| ticks.len() >= 4);
    found.unwrap_or_else(|| {
        // Narrower than that: even steps.
        (0..=4).map(|step| low + (high - low) * f64::from(step) / 4.0).collect()
    })
}

/// A number with as many digits as a tick needs.
pub fn tick(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 1e5 || (size < 1e-3 && size > 0.0) => {
            let rounded: f64 = format!("{value:.2e}").parse().expect("a number");
            return format!("{rounded:e}");
        }
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Words;

    impl Picture for Words {
        fn size(&self) -> (u32, u32) {
            (200, 60)
        }

        fn draw(&self, area: &Area<'_>) -> Result<(), Failure> {
            area.titled("perplexity", (FONT, CAPTION))?;
            Ok(())
        }
    }

    #[test]
    fn text_is_drawn_without_any_font_of_the_system() {
        let folder = tempfile::tempdir().unwrap();
        save(&Words, &folder.path().join("words")).unwrap();
        let svg = fs::read_to_string(folder.path().join("words.svg")).unwrap();
        assert!(svg.contains("perplexity") && svg.contains("width=\"200\""), "{svg}");
        assert!(svg.starts_with("<svg role=\"img\" ") && svg.contains(DARK), "{svg}");
        assert!(svg.contains("<title>perplexity") && svg.contains("<desc>"), "{svg}");
        // Nothing else is left there.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn no_name_breaks_a_picture() {
        assert_eq!(
            "a\u{7}\tb\u{ffff}\u{1f600}".replace(is_no_xml, "\u{fffd}"),
            "a\u{fffd}\tb\u{fffd}\u{1f600}"
        );
    }

    #[test]
    fn a_head_has_one_colour_whatever_its_place() {
        for (label, index) in [("mos", 0), ("mos, best 93.2", 3), ("mos-11", 5), ("mos K 10", 1)] {
            assert_eq!(LineStyle::of(index, label).color, RGBColor(0, 110, 180), "{label}");
        }
        assert_ne!(LineStyle::of(0, "mos-plif").color, LineStyle::of(0, "mos").color);
        assert_eq!(LineStyle::of(2, "mosaic").color, LineStyle::nth(2).color);
    }

    #[test]
    fn a_folder_that_is_not_there_is_one_line() {
        let message = save(&Words, Path::new("no/such/folder/words")).unwrap_err().to_string();
        assert!(message.starts_with("cannot write `no/such/folder/words.svg`"), "{message}");
        assert!(!message.contains('\n'));
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(log_ticks(55.0, 700.0), [70.0, 100.0, 150.0, 200.0, 300.0, 400.0, 500.0, 700.0]);
        assert_eq!(log_ticks(1.0, 1000.0), [1.0, 10.0, 100.0, 1000.0]);
        for (low, high) in [(55.0, 56.0), (0.001, 0.5), (1.0, 1e9), (90.0, 130.0)] {
            let ticks = log_ticks(low, high);
            assert!((4..=13).contains(&ticks.len()), "{low} to {high}: {ticks:?}");
            assert!(ticks.iter().all(|tick| (low..=high).contains(tick)));
        }
        assert_eq!([0.5, 55.25, 700.0, 3e6].map(tick), ["0.5", "55.25", "700", "3e6"]);
        assert_eq!([1.2e-6, 1.4e-6, 150_000.0, 99_999.9].map(tick), ["1.2e-6", "1.4e-6", "1.5e5", "99999.9"]);
    }
}
