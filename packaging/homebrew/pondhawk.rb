# The formula for Homebrew. `cargo xtask package` fills in the checksum of the sources.
class Pondhawk < Formula
  desc "MQTT broker for 3.1, 3.1.1 and 5.0, with command-line clients"
  homepage "https://github.com/pondhawk/pondhawk"
  url "https://github.com/pondhawk/pondhawk/releases/download/v0.1.0/pondhawk-0.1.0-source.tar.gz"
  sha256 "@SOURCE_SHA256@"
  license any_of: ["Apache-2.0", "MIT"]

  depends_on "rust" => :build

  def install
    # A toolchain of rustup would be the one that this file names.
    rm "rust-toolchain.toml"
    system "cargo", "install", *std_cargo_args(path: "crates/pondhawk")
    generate_completions_from_executable(bin/"pondhawk", "completions")
    man1.mkpath
    system bin/"pondhawk", "man", man1
    (etc/"pondhawk").install "packaging/pondhawk.toml"
    (var/"lib/pondhawk").mkpath
  end

  service do
    run [opt_bin/"pondhawk", "--config", etc/"pondhawk/pondhawk.toml", "--data-dir", var/"lib/pondhawk"]
    keep_alive true
    working_dir var/"lib/pondhawk"
    log_path var/"log/pondhawk.log"
    error_log_path var/"log/pondhawk.log"
  end

  test do
    port = free_port
    broker = spawn bin/"pondhawk", "--listen", "127.0.0.1:#{port}", "--data-dir", testpath/"data"
    sleep 2
    system bin/"pondhawk", "probe", "127.0.0.1:#{port}"
    assert_match version.to_s, shell_output("#{bin}/pondhawk --version")
  ensure
    Process.kill "TERM", broker
    Process.wait broker
  end
end
