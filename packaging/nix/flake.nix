{
  description = "Pondhawk, an MQTT broker for 3.1, 3.1.1 and 5.0";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixpkgs-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
        "aarch64-darwin"
      ];
      forEach = nixpkgs.lib.genAttrs systems;
    in
    {
      packages = forEach (system: {
        default = nixpkgs.legacyPackages.${system}.callPackage ./package.nix { };
      });
      nixosModules.default = import ./module.nix self;
    };
}
