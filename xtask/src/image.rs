//! `image`: builds the image by the Dockerfile with buildah, which needs no engine, and runs what is in it.
//!
//! The base images come from what this machine reaches: Debian's packages, and its own Rust.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    setup::{self, Tool, tool_of},
    shell::{self, command, printed, workspace},
};

const TOOLS: [Tool; 2] = [
    tool_of("buildah", "buildah", "building the image"),
    tool_of("debootstrap", "debootstrap", "making the Debian that the image begins with"),
];
/// What the image of Rust has besides Rust.
const COMPILERS: &str = "build-essential ca-certificates git perl";
const TAG: &str = "localhost/weir";
/// The folder of the image store, from the workspace.
const FOLDER: &str = "target/image";

pub fn run() -> Result<()> {
    setup::programs(&TOOLS)?;
    fs::create_dir_all(folder()).with_context(|| format!("cannot make {}", folder().display()))?;
    let file = fs::read_to_string(workspace().join("Dockerfile")).context("cannot read Dockerfile")?;
    let bases: Vec<&str> = file.lines().filter_map(|line| line.strip_prefix("FROM ")?.split(' ').next()).collect();
    let [rust, debian] = bases[..] else {
        anyhow::bail!("the Dockerfile has {bases:?}, not a Rust and a Debian image")
    };
    debian_image(debian)?;
    rust_image(rust, debian)?;
    let revision = shell::output("git", &["rev-parse", "HEAD"]).unwrap_or_default();
    let mut build = buildah(&["build", "--format", "docker", "--pull-never", "--isolation", "chroot", "-t", TAG]);
    build.args(["--build-arg", concat!("VERSION=", env!("CARGO_PKG_VERSION"))]);
    build.arg("--build-arg").arg(format!("REVISION={}", revision.trim()));
    // An engine sets it by itself.
    build.arg("--build-arg").arg(format!("TARGETARCH={}", std::env::consts::ARCH));
    shell::run(build.args(["--ignorefile", ".dockerignore", "."]))?;
    declares()?;
    runs()
}

fn folder() -> PathBuf {
    workspace().join(FOLDER)
}

/// buildah with a store of its own. The vfs driver works on every file system.
fn buildah(args: &[&str]) -> Command {
    let mut buildah = command("buildah", &["--storage-driver", "vfs"]);
    buildah.arg("--root").arg(folder().join("storage")).arg("--runroot").arg(folder().join("run")).args(args);
    buildah
}

fn exists(image: &str) -> bool {
    buildah(&["inspect", "--type", "image", image]).output().is_ok_and(|output| output.status.success())
}

/// Stands in for `debian:<suite>-slim`: the packages of the suite that cannot be removed.
fn debian_image(name: &str) -> Result<()> {
    if exists(name) {
        return Ok(());
    }
    let suite = name.strip_prefix("debian:").and_then(|tag| tag.strip_suffix("-slim"));
    let suite = suite.with_context(|| format!("the Dockerfile ends with {name}, not debian:<suite>-slim"))?;
    let root = folder().join("debian");
    setup::remove(&root)?;
    shell::run(command("debootstrap", &["--variant=minbase", suite]).arg(&root))?;
    let container = printed(buildah(&["from", "scratch"]))?;
    printed(buildah(&["copy", "--quiet", &container]).arg(&root).arg("/"))?;
    shell::run(buildah(&["commit", "--rm", "--quiet", &container, name]))
}

/// Stands in for `rust:<version>-<suite>`: the other image with compilers and this machine's Rust.
fn rust_image(name: &str, debian: &str) -> Result<()> {
    if exists(name) {
        return Ok(());
    }
    let sysroot = shell::output("rustc", &["--print", "sysroot"]).context("rustc does not name its folder")?;
    // Where the network is reached through an authority of its own, cargo needs this machine's list.
    let file = format!(
        "FROM {debian}\n\
         RUN apt-get update && apt-get install -y --no-install-recommends {COMPILERS} && rm -rf /var/lib/apt/lists/*\n\
         COPY --from=trust /certificates.pem /etc/ssl/certs/ca-certificates.crt\n\
         COPY . /usr/local/rust\n\
         ENV PATH=/usr/local/cargo/bin:/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \\\n\
         \x20   CARGO_HOME=/usr/local/cargo\n"
    );
    let (path, trust) = (folder().join("rust.Dockerfile"), folder().join("trust"));
    fs::create_dir_all(&trust).with_context(|| format!("cannot make {}", trust.display()))?;
    let authorities =
        std::env::var_os("SSL_CERT_FILE").map_or("/etc/ssl/certs/ca-certificates.crt".into(), PathBuf::from);
    fs::copy(&authorities, trust.join("certificates.pem"))
        .with_context(|| format!("cannot copy {}", authorities.display()))?;
    fs::write(&path, file).with_context(|| format!("cannot write {}", path.display()))?;
    let mut build = buildah(&["build", "--pull-never", "--isolation", "chroot", "-t", name, "-f"]);
    shell::run(build.arg(&path).arg("--build-context").arg(format!("trust={}", trust.display())).arg(sysroot.trim()))
}

/// The image's configuration is what its users rely on.
fn declares() -> Result<()> {
    let text = printed(buildah(&["inspect", "--type", "image", TAG]))?;
    let image: Value = serde_json::from_str(&text).context("buildah inspect printed no JSON")?;
    let config = &image["Docker"]["config"];
    let user = config["User"].as_str().unwrap_or_default();
    let ids: Vec<u32> = user.split(':').filter_map(|id| id.parse().ok()).collect();
    ensure!(ids.len() == 2 && !ids.contains(&0), "the image runs as {user:?}, not as a number above 0");
    ensure!(config["Entrypoint"] == serde_json::json!(["weir"]), "the image's entry point is {}", config["Entrypoint"]);
    ensure!(config["Healthcheck"]["Test"].is_array(), "the image has no health check");
    for label in ["title", "licenses", "version", "revision"] {
        let value = &config["Labels"][format!("org.opencontainers.image.{label}")];
        ensure!(value.as_str().is_some_and(|value| !value.is_empty()), "the image has no label {label}");
    }
    Ok(())
}

/// weir decides the demo's intents as the image's user on a root file system that nobody may write.
fn runs() -> Result<()> {
    let container = printed(buildah(&["from", "--pull-never", TAG]))?;
    let root = printed(buildah(&["mount", &container]))?;
    let result = notices(Path::new(&root)).and_then(|()| demo(Path::new(&root)));
    printed(buildah(&["rm", &container]))?;
    result
}

fn notices(root: &Path) -> Result<()> {
    let file = root.join("usr/share/doc/weir/THIRD-PARTY.txt");
    let text = fs::read_to_string(&file).with_context(|| format!("the image lacks {}", file.display()))?;
    for name in ["rdkafka-sys", "tokio", "redis"] {
        ensure!(text.contains(name), "the notices in the image lack {name}");
    }
    Ok(())
}

fn demo(root: &Path) -> Result<()> {
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && \
                  exec chroot --userspec=10001:10001 \"$0\" \"$@\"";
    let mut demo = command("unshare", &["--mount", "sh", "-ec", script]);
    demo.arg(root).args(["weir", "demo"]).env_clear();
    demo.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    shell::run(demo).context("the image's weir does not run with a read-only root")
}
