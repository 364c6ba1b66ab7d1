//! The image for containers, in the layout of the OCI image specification 1.1, and without a daemon.
//!
//! The image has one layer: the program, its user, and a folder for its data. `docker load`, `podman load` and `skopeo` read
//! the archive.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::stage::copy;
use super::{Release, text_of, write};
use crate::log::Log;

/// Number of the user and of the group in the image. Images do not share users with the machine.
const USER: u32 = 10_001;

/// The first part of the names of media types.
const KIND: &str = "application/vnd.oci.image";

/// An image for one machine.
#[derive(Debug)]
pub(super) struct Image {
    /// The archive that is published.
    pub(super) archive: PathBuf,
    /// The folder that is in the archive.
    layout: PathBuf,
    /// The entry of an index that refers to the manifest.
    entry: String,
}

/// Makes the image from the files of the release.
pub(super) fn run(release: &Release<'_>, log: &mut Log) -> Result<Image, String> {
    let root = release.work.join("image-root");
    fill(release, &root)?;
    let layout = release.work.join("image");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).map_err(|error| format!("{}: {error}", blobs.display()))?;
    let tar = release.work.join("layer.tar");
    layer(release, &root, &tar, log)?;
    let (layer_digest, _) = digest(release, &tar)?;
    let layer = store(release, &blobs, &release.gzip(&tar, log)?)?;
    let architecture = release.machine.architecture();
    let config = release.work.join("config.json");
    write(&config, &configuration(release, architecture, &layer_digest)?)?;
    let config = store(release, &blobs, &config)?;
    let manifest = release.work.join("manifest.json");
    write(
        &manifest,
        &format!(
            "{{\"schemaVersion\":2,\"mediaType\":\"{KIND}.manifest.v1+json\",\
             \"config\":{{\"mediaType\":\"{KIND}.config.v1+json\",{config}}},\
             \"layers\":[{{\"mediaType\":\"{KIND}.layer.v1.tar+gzip\",{layer}}}]}}"
        ),
    )?;
    let manifest = store(release, &blobs, &manifest)?;
    let entry = format!(
        "\"mediaType\":\"{KIND}.manifest.v1+json\",{manifest},\
         \"platform\":{{\"architecture\":\"{architecture}\",\"os\":\"linux\"}}"
    );
    let archive = release.folder.join(format!("{}.oci.tar", release.name()));
    pack(release, &layout, &entry, &archive, log)?;
    Ok(Image { archive, layout, entry })
}

/// Makes an image for several machines. Its index refers to a second index, with an entry for each machine.
pub(super) fn join(release: &Release<'_>, images: &[&Image], log: &mut Log) -> Result<PathBuf, String> {
    let layout = release.work.join("images");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).map_err(|error| format!("{}: {error}", blobs.display()))?;
    for image in images {
        let parts = image.layout.join("blobs/sha256/.");
        log.run(release.command("cp").arg("--archive").arg(parts).arg(&blobs))?;
    }
    let entries: Vec<String> = images.iter().map(|image| format!("{{{}}}", image.entry)).collect();
    let index = release.work.join("index.json");
    write(&index, &index_of(&entries.join(",")))?;
    let index = store(release, &blobs, &index)?;
    let archive = release.folder.join(format!("pondhawk-{}.oci.tar", release.version));
    let entry = format!("\"mediaType\":\"{KIND}.index.v1+json\",{index}");
    pack(release, &layout, &entry, &archive, log)?;
    Ok(archive)
}

fn index_of(entries: &str) -> String {
    format!("{{\"schemaVersion\":2,\"mediaType\":\"{KIND}.index.v1+json\",\"manifests\":[{entries}]}}")
}

/// Packs a layout whose index has one entry, under the name of the image.
fn pack(
    release: &Release<'_>,
    layout: &Path,
    entry: &str,
    archive: &Path,
    log: &mut Log,
) -> Result<(), String> {
    let version = &release.version;
    let named = format!(
        "{{{entry},\"annotations\":{{\"io.containerd.image.name\":\"docker.io/pondhawk/pondhawk:{version}\",\
         \"org.opencontainers.image.ref.name\":\"{version}\"}}}}"
    );
    write(&layout.join("index.json"), &index_of(&named))?;
    write(&layout.join("oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}")?;
    release.tar(layout, ".", archive, log)
}

/// The files of the image.
fn fill(release: &Release<'_>, root: &Path) -> Result<(), String> {
    copy(&release.root.join("usr/bin/pondhawk"), &root.join("usr/bin/pondhawk"), 0o755)?;
    write(
        &root.join("etc/passwd"),
        &format!("root:x:0:0::/:/\npondhawk:x:{USER}:{USER}::/var/lib/pondhawk:/\n"),
    )?;
    write(&root.join("etc/group"), &format!("root:x:0:\npondhawk:x:{USER}:\n"))?;
    for (folder, mode) in [("tmp", 0o1777), ("var/lib/pondhawk", 0o750), ("etc/pondhawk", 0o755)] {
        let path = root.join(folder);
        fs::create_dir_all(&path)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(mode)))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// The layer: all files belong to root, except the folder for data.
fn layer(release: &Release<'_>, root: &Path, tar: &Path, log: &mut Log) -> Result<(), String> {
    let mut others = release.tar_of_root(tar);
    log.run(others.arg("--exclude=./var/lib/pondhawk").arg("--directory").arg(root).arg("."))?;
    let mut owned = release.command("tar");
    owned.args(["--append", "--format=gnu", "--numeric-owner", "--no-recursion"]);
    owned.arg(format!("--owner={USER}")).arg(format!("--group={USER}"));
    owned.arg(format!("--mtime=@{}", release.time)).arg("--file").arg(tar);
    log.run(owned.arg("--directory").arg(root).arg("./var/lib/pondhawk"))
}

/// The configuration of the image. `Healthcheck` is an addition of Docker's, which others ignore.
fn configuration(release: &Release<'_>, architecture: &str, layer: &str) -> Result<String, String> {
    let time = release.date("+%FT%TZ")?;
    let list = |words: &[&str]| format!("[\"{}\"]", words.join("\",\""));
    let command = ["--listen", "0.0.0.0:1883", "--allow-anonymous", "--data-dir", "/var/lib/pondhawk"];
    // A token would be the one of the default configuration only.
    let health = ["CMD", "pondhawk", "ctl", "ready"];
    let label = |name: &str, value: &str| format!("\"org.opencontainers.image.{name}\":\"{value}\"");
    let labels = [
        label("title", "Pondhawk"),
        label("description", "An MQTT broker for 3.1, 3.1.1 and 5.0"),
        label("licenses", "Apache-2.0 OR MIT"),
        label("source", "https://github.com/pondhawk/pondhawk"),
        label("version", &release.version),
    ];
    Ok(format!(
        "{{\"created\":\"{}\",\"architecture\":\"{architecture}\",\"os\":\"linux\",\"config\":{{\
         \"User\":\"{USER}:{USER}\",\"ExposedPorts\":{{\"1883/tcp\":{{}}}},\
         \"Env\":[\"PATH=/usr/bin\",\"PONDHAWK_ADMIN_ADDRESS=127.0.0.1:9883\"],\
         \"Entrypoint\":[\"/usr/bin/pondhawk\"],\"Cmd\":{},\"WorkingDir\":\"/var/lib/pondhawk\",\
         \"Volumes\":{{\"/var/lib/pondhawk\":{{}}}},\"StopSignal\":\"SIGTERM\",\
         \"Healthcheck\":{{\"Test\":{},\"Interval\":30000000000,\"Timeout\":10000000000}},\
         \"Labels\":{{{}}}}},\
         \"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[\"sha256:{layer}\"]}},\
         \"history\":[{{\"created\":\"{}\",\"created_by\":\"cargo xtask package\"}}]}}",
        time,
        list(&command),
        list(&health),
        labels.join(","),
        time,
    ))
}

/// Stores a file under its digest. Returns the fields that refer to it.
fn store(release: &Release<'_>, blobs: &Path, file: &Path) -> Result<String, String> {
    let (digest, bytes) = digest(release, file)?;
    copy(file, &blobs.join(&digest), 0o644)?;
    Ok(format!("\"digest\":\"sha256:{digest}\",\"size\":{bytes}"))
}

/// The SHA-256 of a file, and its size.
fn digest(release: &Release<'_>, file: &Path) -> Result<(String, u64), String> {
    let line = text_of(release.command("sha256sum").arg(file))?;
    let bytes = fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?.len();
    Ok((line.split(' ').next().unwrap_or_default().to_owned(), bytes))
}
