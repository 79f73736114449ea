//! The report as one page of HTML that needs nothing else: no script, no font, no network.

use askama::Template;
use weir_core::{
    basis::zone::Zone,
    replay::{HourRow, Report, Totals, VerdictCounts},
};

use super::{
    plots::{Plot, SIZE, Style, drawing},
    text::{Grid, deferred, labels, tables},
};

/// The most places of the plot over time; where there are more hours, they are drawn by the day.
const MOST_HOURS: usize = 24 * 15;

struct Figure {
    title: &'static str,
    description: String,
    size: (u32, u32),
    drawing: String,
}

#[derive(Template)]
#[template(path = "simulation.html")]
struct SimulationPage<'r> {
    report: &'r Report,
    /// Each with its label, and its deferrals in words.
    policies: Vec<(&'static str, &'r Totals, String)>,
    series: Vec<String>,
    figures: Vec<Figure>,
    tables: Vec<(String, Grid)>,
}

pub(super) fn page(report: &Report) -> anyhow::Result<String> {
    let policies = labels(report).into_iter().zip(&report.policies);
    let policies = policies.map(|(label, policy)| (label, policy, deferred(policy.deferred)));
    let page = SimulationPage {
        report,
        policies: policies.collect(),
        series: legend(report),
        figures: figures(report)?,
        tables: tables(report),
    };
    Ok(page.render()?)
}

/// One policy: sent and suppressed. Two: what each sent.
fn legend(report: &Report) -> Vec<String> {
    match report.policies.len() {
        0 | 1 => vec!["sent".to_owned(), "suppressed".to_owned()],
        _ => labels(report).iter().map(|label| format!("sent ({label})")).collect(),
    }
}

fn series<'c>(report: &Report, rows: impl Iterator<Item = &'c [VerdictCounts]> + Clone) -> Vec<(String, Vec<u64>)> {
    let value = |number: usize, counts: &[VerdictCounts]| match (report.policies.len(), number) {
        (0 | 1, 1) => counts.first().map_or(0, |counts| counts.suppressed),
        (_, number) => counts.get(number).map_or(0, VerdictCounts::sent),
    };
    let one = |(number, name)| (name, rows.clone().map(|counts| value(number, counts)).collect());
    legend(report).into_iter().enumerate().map(one).collect()
}

fn figures(report: &Report) -> anyhow::Result<Vec<Figure>> {
    let (times, by_time) = over_time(report);
    let hours: Vec<String> = (0..24).map(|hour| format!("{hour:02}")).collect();
    let segments: Vec<String> =
        report.segments.iter().map(|row| row.name.clone().unwrap_or_else(|| "(none)".to_owned())).collect();
    let messages: Vec<String> = report.users.approved_per_user.iter().map(|row| row.approved.to_string()).collect();
    let users = |number: usize| report.users.approved_per_user.iter().map(|row| row.users[number]).collect();
    let users: Vec<(String, Vec<u64>)> =
        labels(report).iter().enumerate().map(|(number, label)| ((*label).to_owned(), users(number))).collect();
    let plots = [
        ("Intents over time", times, series(report, by_time.iter().map(Vec::as_slice)), Style::Line),
        (
            "Intents by hour of the day",
            hours,
            series(report, report.hours_of_day.iter().map(Vec::as_slice)),
            Style::Bars,
        ),
        (
            "Intents by segment",
            segments,
            series(report, report.segments.iter().map(|row| row.outcomes.as_slice())),
            Style::Bars,
        ),
        ("Users by number of messages sent to them", messages, users, Style::Bars),
    ];
    let drawn = plots.into_iter().map(|(title, labels, series, style)| {
        let sums: Vec<String> =
            series.iter().map(|(name, values)| format!("{name}: {} in all", values.iter().sum::<u64>())).collect();
        let description = format!("{}. The table below has the figures.", sums.join("; "));
        let drawing = drawing(&Plot { labels: &labels, series: &series }, style)?;
        Ok(Figure { title, description, size: SIZE, drawing })
    });
    drawn.collect()
}

/// What became of intents, by the hour or by the day: the times as words, and the counts.
fn over_time(report: &Report) -> (Vec<String>, Vec<Vec<VerdictCounts>>) {
    let form = if report.hours.len() > MOST_HOURS { "%m-%d" } else { "%m-%d %Hh" };
    let zone = Zone::named(report.timezone).unwrap_or_else(Zone::utc);
    let said = |row: &HourRow| row.begin.timestamp().to_zoned(zone.time_zone().clone()).strftime(form).to_string();
    let mut places: Vec<(String, Vec<VerdictCounts>)> = Vec::new();
    for row in &report.hours {
        let said = said(row);
        match places.last_mut() {
            Some((last, counts)) if *last == said => {
                for (sum, counts) in counts.iter_mut().zip(&row.outcomes) {
                    sum.approved += counts.approved;
                    sum.shadow_suppressed += counts.shadow_suppressed;
                    sum.suppressed += counts.suppressed;
                }
            }
            Some(_) | None => places.push((said, row.outcomes.clone())),
        }
    }
    places.into_iter().unzip()
}
