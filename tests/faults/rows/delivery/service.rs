//! An instance of a delivery service, as weir knows it: a registration that is renewed.

use std::{
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::Builder,
};

use testkit::http;

use super::*;

/// How often it renews. weir removes it after three of these.
const INTERVAL: Duration = Duration::from_secs(1);

/// Renews its registration until it is dropped: then it says nothing any more, like a process that died.
pub struct Instance {
    _lives: Sender<()>,
}

impl Instance {
    /// Registers with the weir at this address that it takes so many per second.
    pub fn start(address: &str, name: &str, per_s: u32) -> Result<Self> {
        let url = format!("http://{address}/v1/services/mailer/instances/{name}");
        let interval_ms = INTERVAL.as_millis();
        let body =
            json!({"capacity_per_s": per_s, "concurrency": 100, "timeout_ms": 600_000, "interval_ms": interval_ms});
        let (lives, death) = channel::<()>();
        let renew = move || -> Result<()> {
            let (status, answer) = http::send("PUT", &url, &body)?;
            ensure!(status == 200, "{status}: {answer}");
            Ok(())
        };
        renew()?;
        Builder::new().name("instance".to_owned()).spawn(move || {
            while death.recv_timeout(INTERVAL / 2) == Err(RecvTimeoutError::Timeout) {
                // One that is refused is sent again with the next interval, as a service would.
                let _ = renew();
            }
        })?;
        Ok(Self { _lives: lives })
    }
}
