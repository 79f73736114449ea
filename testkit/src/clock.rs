//! A wrong clock for one process.
//!
//! A small library, preloaded, moves what `clock_gettime(CLOCK_REALTIME)` says. libfaketime would do more than that: it
//! also moves the absolute times that librdkafka hands to `pthread_cond_timedwait`, and its timers with them.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::scratch::Scratch;

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    static long ahead;
    if (!real) {
        const char *set = getenv("WEIR_TEST_CLOCK_AHEAD_S");
        ahead = set ? atol(set) : 0;
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    int result = real(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += ahead;
    return result;
}
"#;

/// The library that moves clocks.
#[derive(Debug)]
pub struct MovedClock {
    scratch: Scratch,
}

impl MovedClock {
    /// Builds it.
    ///
    /// # Errors
    /// When there is no C compiler (run `cargo xtask setup`), or it fails.
    pub fn build() -> Result<Self> {
        let scratch = Scratch::new("clock")?;
        std::fs::write(scratch.join("clock.c"), SOURCE)?;
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o", "clock.so", "clock.c", "-ldl"]).current_dir(scratch.path());
        let output = cc.output().context("there is no C compiler: run `cargo xtask setup`")?;
        ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Self { scratch })
    }

    /// The environment of a process whose clock is so many seconds ahead.
    #[must_use]
    pub fn env(&self, ahead_s: i64) -> [(&'static str, String); 2] {
        let library = self.scratch.join("clock.so").display().to_string();
        [("LD_PRELOAD", library), ("WEIR_TEST_CLOCK_AHEAD_S", ahead_s.to_string())]
    }
}
