//! Plots of ratios, as SVG files for the docs.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::{
    prelude::{
        ChartBuilder, Circle, Color as _, IntoDrawingArea as _, IntoFont as _, LineSeries, PathElement, RGBColor,
        Rectangle, SVGBackend,
    },
    style::{BLACK, WHITE},
};

/// Size in pixels; SVG scales.
const SIZE: (u32, u32) = (640, 320);
/// Colours that differ for all kinds of sight (Okabe and Ito).
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];
const GRID: RGBColor = RGBColor(128, 128, 128);

/// Lines over named places, and a band in which they should stay.
pub struct Plot<'p> {
    pub title: &'p str,
    pub labels: &'p [String],
    /// A name, and a value a place.
    pub lines: &'p [(&'static str, Vec<f64>)],
    /// From where to where the values should be.
    pub band: (f64, f64),
}

/// Writes the plot to a file, and its folder if need be.
pub fn write(plot: &Plot<'_>, file: &Path) -> Result<()> {
    let mut svg = String::new();
    draw(plot, &mut svg).map_err(|error| anyhow!("{}: {error}", plot.title))?;
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))
}

fn draw(plot: &Plot<'_>, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let last = plot.labels.len().saturating_sub(1) as f64;
    let values = plot.lines.iter().flat_map(|(_, values)| values).copied();
    let most = values.filter(|value| value.is_finite()).fold(plot.band.1, f64::max).max(1.5) * 1.05;
    let text = ("sans-serif", 13).into_font().color(&BLACK);
    let mut chart = ChartBuilder::on(&root)
        .caption(plot.title, ("sans-serif", 15))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(40)
        .build_cartesian_2d(-0.25..last + 0.25, 0.0..most)?;
    let label = |place: &f64| {
        let whole = (place - place.round()).abs() < 1e-6 && *place > -0.5;
        let label = if whole { plot.labels.get(place.round() as usize) } else { None };
        label.cloned().unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .axis_style(GRID)
        .bold_line_style(GRID.mix(0.25))
        .light_line_style(GRID.mix(0.0))
        .label_style(text.clone())
        // Steps of a quarter, so that the places are among them.
        .x_labels(4 * plot.labels.len() + 2)
        .x_label_formatter(&label)
        .y_label_formatter(&|value: &f64| format!("{value:.2}"))
        .draw()?;
    let (low, high) = plot.band;
    chart.draw_series([Rectangle::new([(-0.25, low), (last + 0.25, high)], GRID.mix(0.15).filled())])?;
    for ((name, values), colour) in plot.lines.iter().zip(COLOURS.iter().cycle()) {
        let points: Vec<(f64, f64)> = values.iter().enumerate().map(|(place, value)| (place as f64, *value)).collect();
        let line = chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
        line.label(*name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(plotters::prelude::SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .label_font(text)
        .draw()?;
    root.present()?;
    Ok(())
}
