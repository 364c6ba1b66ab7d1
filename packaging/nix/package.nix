# The program, with its manual pages and completions.
{
  lib,
  stdenv,
  coreutils,
  rustPlatform,
  installShellFiles,
}:
rustPlatform.buildRustPackage {
  pname = "pondhawk";
  version = "0.1.0";

  src = lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;
  cargoBuildFlags = [ "--package=pondhawk" ];
  # The tests of the repository need other programs and open ports.
  doCheck = false;

  nativeBuildInputs = [ installShellFiles ];
  postInstall = lib.optionalString (stdenv.buildPlatform.canExecute stdenv.hostPlatform) ''
    mkdir man
    $out/bin/pondhawk man man
    installManPage man/*
    installShellCompletion --cmd pondhawk \
      --bash <($out/bin/pondhawk completions bash) \
      --fish <($out/bin/pondhawk completions fish) \
      --zsh <($out/bin/pondhawk completions zsh)
    install -D --mode=644 packaging/pondhawk.service $out/lib/systemd/system/pondhawk.service
    substituteInPlace $out/lib/systemd/system/pondhawk.service \
      --replace-fail /usr/bin $out/bin \
      --replace-fail /bin/kill ${coreutils}/bin/kill
  '';

  meta = {
    description = "MQTT broker for 3.1, 3.1.1 and 5.0";
    homepage = "https://github.com/pondhawk/pondhawk";
    license = with lib.licenses; [
      asl20
      mit
    ];
    mainProgram = "pondhawk";
    platforms = lib.platforms.unix;
  };
}
