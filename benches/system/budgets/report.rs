//! What is printed: a table for each window.

use super::{
    Case, Figures,
    load::{OFFERED, Window},
};
use crate::report::table;

impl Case {
    fn row(&self) -> Vec<String> {
        let Self { scene, one_call, fixed, weir } = self;
        let over = |figures: &Figures| percent(100.0 * figures.most_over as f64 / scene.limit as f64);
        let used = |figures: &Figures| percent(100.0 * figures.used);
        vec![
            scene.limit.to_string(),
            scene.instances.to_string(),
            used(one_call),
            percent(fixed.calls_percent()),
            over(fixed),
            used(fixed),
            percent(weir.calls_percent()),
            over(weir),
            used(weir),
            percent(weir.waited_percent()),
        ]
    }
}

/// Two digits that say something.
fn percent(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        small if small < 0.1 => format!("{small:.3}"),
        small if small < 10.0 => format!("{small:.2}"),
        large => format!("{large:.1}"),
    }
}

fn head(window: Window) -> [&'static str; 10] {
    [
        window.kind().says,
        "instances",
        "one call per intent: used",
        "fixed batch: calls",
        "over",
        "used",
        "weir: calls",
        "over",
        "used",
        "batches that wait",
    ]
}

pub(super) fn tables(cases: &[Case]) -> String {
    let of_window = cases.chunk_by(|one, next| one.scene.window == next.scene.window).map(|cases| {
        let table = table(head(cases[0].scene.window), cases.iter().map(Case::row));
        format!("\n{table}\n")
    });
    format!(
        "offered in a window: {OFFERED} of the limit; all figures in %\n\
         calls: of the ledger, of decisions (one call per intent: 100)\n\
         over: approved above the limit in the fullest window, of the limit\n\
         used: approved in a window, of the limit\n{}",
        of_window.collect::<String>()
    )
}
