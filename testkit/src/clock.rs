//! A wrong clock for one process, which can be moved while it runs.
//!
//! A small library, preloaded, moves what `clock_gettime(CLOCK_REALTIME)` gives, by as much as a file says that is mapped
//! into memory; for Redis also `gettimeofday`. libfaketime would do more than that: it also moves the absolute times, made of
//! `gettimeofday`, that librdkafka hands to `pthread_cond_timedwait`, which then waits for days.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::PathBuf,
    process::Command,
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use anyhow::{Context, Error, Result};

use crate::{process::printed, scratch::Scratch};

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_s;

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("WEIR_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *mapped = mmap(0, sizeof *ahead_s, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) ahead_s = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME && ahead_s) time->tv_sec += *ahead_s;
    return result;
}

int gettimeofday(struct timeval *time, void *zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(time, zone);
    if (result == 0 && ahead_s && getenv("WEIR_TEST_CLOCK_OF_DAY")) time->tv_sec += *ahead_s;
    return result;
}
"#;

/// The folder of the library that moves clocks.
static LIBRARY: LazyLock<Result<Scratch, String>> = LazyLock::new(|| build().map_err(|error| format!("{error:#}")));

fn build() -> Result<Scratch> {
    let scratch = Scratch::new("clock")?;
    std::fs::write(scratch.join("clock.c"), SOURCE)?;
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o", "clock.so", "clock.c", "-ldl"]).current_dir(scratch.path());
    printed(&mut cc).context("no C compiler can do it: run `cargo xtask setup`")?;
    Ok(scratch)
}

/// The clock of one process, or of all processes started with its environment.
#[derive(Debug)]
pub struct ProcessClock {
    library: PathBuf,
    path: PathBuf,
    file: File,
}

impl ProcessClock {
    /// A clock that is so many seconds ahead of the true time.
    pub fn ahead(ahead_s: i64) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = LIBRARY.as_ref().map_err(|error| Error::msg(error.clone()))?;
        let path = folder.join(&format!("ahead-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        let file = File::create_new(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let clock = Self { library: folder.join("clock.so"), path, file };
        clock.set(ahead_s)?;
        Ok(clock)
    }

    /// Sets it so many seconds ahead of the true time.
    pub fn set(&self, ahead_s: i64) -> Result<()> {
        let written = self.file.write_all_at(&ahead_s.to_ne_bytes(), 0);
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// The environment of a process with this clock that asks `gettimeofday` for the time.
    pub(crate) fn env_of_day(&self) -> Vec<(&'static str, String)> {
        let [library, clock] = self.env();
        vec![library, clock, ("WEIR_TEST_CLOCK_OF_DAY", "yes".to_owned())]
    }

    pub fn env(&self) -> [(&'static str, String); 2] {
        [("LD_PRELOAD", self.library.display().to_string()), ("WEIR_TEST_CLOCK", self.path.display().to_string())]
    }
}
