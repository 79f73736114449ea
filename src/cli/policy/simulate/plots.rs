//! Plots as SVG, to stand in a page: their colours are the page's, by the classes that the page styles.

use plotters::{
    prelude::{
        AreaSeries, ChartBuilder, Color as _, IntoDrawingArea as _, IntoFont as _, LineSeries, RGBColor, Rectangle,
        SVGBackend, TextStyle,
    },
    style::BLACK,
};

/// Size of a plot in pixels; the page scales it.
pub(super) const SIZE: (u32, u32) = (760, 300);
/// Blue and orange that differ for all kinds of sight (Okabe and Ito), on light and on dark ground.
const COLOURS: [RGBColor; 2] = [RGBColor(0, 114, 178), RGBColor(213, 94, 0)];
/// The most labels that stand beside one another.
const MOST_LABELS: usize = 12;
/// What axes and grid are drawn in.
const GRID: RGBColor = RGBColor(128, 128, 128);

pub(super) struct Plot<'p> {
    /// What the x axis says at each place.
    pub(super) labels: &'p [String],
    /// One value a place, for each series.
    pub(super) series: &'p [(String, Vec<u64>)],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// One bar a value, those of the series side by side.
    Bars,
    /// A line over the places.
    Line,
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("a plot could not be drawn: {error}")
}

/// The plot as the content of an `svg` element, with the end of that element.
pub(super) fn drawing(plot: &Plot<'_>, style: Style) -> anyhow::Result<String> {
    let mut svg = String::new();
    draw(plot, style, &mut svg)?;
    // The page opens the element itself: in HTML it needs no name space, and it has a description.
    Ok(svg.split_once('>').map_or("", |(_, rest)| rest).to_owned())
}

fn draw(plot: &Plot<'_>, style: Style, svg: &mut String) -> anyhow::Result<()> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let places = plot.labels.len().max(1);
    let most = plot.series.iter().flat_map(|(_, values)| values).copied().max().unwrap_or(0).max(1);
    let mut chart = ChartBuilder::on(&root)
        .margin(8)
        .margin_right(28)
        .x_label_area_size(32)
        .y_label_area_size(64)
        // Each place is in the middle of its bars.
        .build_cartesian_2d(-0.5..places as f64 - 0.5, 0.0..most as f64 * 1.05)
        .map_err(failed)?;
    let label = |place: &f64| {
        let (at, whole) = (place.round(), (place - place.round()).abs() < 1e-6);
        let label = if whole && at >= 0.0 { plot.labels.get(at as usize) } else { None };
        label.map_or_else(String::new, |label| shortened(label))
    };
    let text: TextStyle<'_> = ("sans-serif", 13).into_font().color(&BLACK);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .axis_style(GRID)
        .bold_line_style(GRID.mix(0.25))
        .light_line_style(GRID.mix(0.0))
        .label_style(text)
        .x_labels(if places <= MOST_LABELS { 2 * places + 1 } else { MOST_LABELS })
        .x_label_formatter(&label)
        .y_label_formatter(&|value: &f64| format!("{value:.0}"))
        .draw()
        .map_err(failed)?;
    let width = 0.8 / plot.series.len().max(1) as f64;
    for (number, (_, values)) in plot.series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points = values.iter().enumerate().map(|(place, value)| (place as f64, *value as f64));
        match style {
            Style::Bars => {
                let bar = |(place, value): (f64, f64)| {
                    let left = place - 0.4 + number as f64 * width;
                    Rectangle::new([(left, 0.0), (left + width, value)], colour.filled())
                };
                chart.draw_series(points.map(bar)).map_err(failed)?;
            }
            Style::Line => {
                chart.draw_series(AreaSeries::new(points.clone(), 0.0, colour.mix(0.15))).map_err(failed)?;
                chart.draw_series(LineSeries::new(points, colour.stroke_width(2))).map_err(failed)?;
            }
        }
    }
    root.present().map_err(failed)?;
    drop(chart);
    drop(root);
    Ok(())
}

/// What fits under a bar.
fn shortened(label: &str) -> String {
    const FITS: usize = 12;
    if label.chars().count() <= FITS { label.to_owned() } else { label.chars().take(FITS - 1).chain(['…']).collect() }
}
