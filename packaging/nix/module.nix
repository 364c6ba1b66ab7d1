# The service for NixOS: `services.pondhawk.enable`, and its configuration as TOML or as a Nix value.
self:
{
  config,
  lib,
  pkgs,
  ...
}:
let
  service = config.services.pondhawk;
  format = pkgs.formats.toml { };
in
{
  options.services.pondhawk = {
    enable = lib.mkEnableOption "the MQTT broker Pondhawk";
    package = lib.mkOption {
      type = lib.types.package;
      default = self.packages.${pkgs.stdenv.hostPlatform.system}.default;
      description = "The package of the broker.";
    };
    settings = lib.mkOption {
      type = format.type;
      default = {
        listener = [ { address = "127.0.0.1:1883"; } ];
      };
      description = "The configuration of the broker. docs/CONFIGURATION.md has all keys.";
    };
  };

  config = lib.mkIf service.enable {
    environment.systemPackages = [ service.package ];
    environment.etc."pondhawk/pondhawk.toml".source = format.generate "pondhawk.toml" service.settings;
    users.users.pondhawk = {
      isSystemUser = true;
      group = "pondhawk";
    };
    users.groups.pondhawk = { };
    # The unit of the package, with all its restrictions.
    systemd.packages = [ service.package ];
    systemd.services.pondhawk = {
      wantedBy = [ "multi-user.target" ];
      reloadTriggers = [ config.environment.etc."pondhawk/pondhawk.toml".source ];
    };
  };
}
