//! Everything at once: workers killed over a blast while the policy is edited and the consumers restart.

use super::*;

/// Of two workers one is killed, again and again, while more comes than delivery takes, at times all at once. Meanwhile the route waits,
/// suppresses, is removed and waits again, and its consumers restart.
pub fn killed_over_edits(ground: &mut Ground, order: &Order) -> Result<Findings> {
    const NAMES: [&str; 2] = ["one", "two"];
    const BLAST: usize = 2_000;
    let waits = format!("rate = {RATE}");
    let suppresses = format!("{waits}\nwhen_full = \"suppress\"");
    let mut paced = Paced::new(ground, order, "killed-over-edits", &waits)?;
    let mut workers = NAMES.map(|name| paced.trial.start(name, &SMALL));
    paced.trial.all_ready(workers)?;
    let mut delivery = paced.delivery(DELIVERS)?;
    paced.trial.load(BLAST)?;
    for time in 0..order.times {
        match time % 10 {
            0 => paced.trial.publish_some(BLAST)?,
            3 => paced.route(&suppresses),
            6 => paced.trial.scene.write_policy(POLICY),
            4 | 7 => paced.route(&waits),
            restarts @ (2 | 5 | 8) => {
                drop(delivery);
                // All that waited was approved at once when the route was removed.
                delivery = paced.delivery(if restarts == 8 { ENOUGH } else { DELIVERS })?;
            }
            _ => {}
        }
        let place = time % NAMES.len();
        paced.trial.live_some_time(workers[place], 200, 5_000)?;
        paced.trial.worker(workers[place]).kill();
        workers[place] = paced.trial.start(NAMES[place], &SMALL);
    }
    paced.trial.comes_back()?;
    let steady = workers.map(|worker| paced.trial.worker(worker).exit());
    ensure!(steady == [None, None], "a worker ended by itself: {steady:?}");
    drop(delivery);
    paced.settle()?;

    let decided = paced.trial.scene.every_decision();
    let guessed = decided.iter().find(|(_, decision)| !["approved", "cap", "capacity"].contains(&decision.reason()));
    ensure!(guessed.is_none(), "suppressed by a guess: {guessed:?}");
    let full = decided.iter().filter(|(_, decision)| decision.reason() == "capacity").count();
    let waited = paced.trial.scene.slim_output("waiting-all").len();
    ensure!(waited > 0, "nothing waited");
    paced.trial.finish_noting(order.times, format!("{waited} waited, {full} were suppressed as `capacity`"))
}
