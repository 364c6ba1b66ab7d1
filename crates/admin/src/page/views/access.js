import { make, encode, number, call, change, table, field, values, order, orders, go, more } from "./page.js";

const KINDS = { dynamic_security_file: "dynamic security", password_file: "password file", acl_file: "access control list",
  rules_file: "rules", jwt: "tokens", http_auth: "service over HTTP", ldap: "directory" };

// The names in a list of roles or groups, with their priorities.
const names = (list, of) => list.map((one) => `${one[of]}${one.priority == null ? "" : ` (${one.priority})`}`).join(", ");
const rule = ({ allow, acltype, topic, priority }) => `${allow ? "allow" : "deny"} ${acltype} ${topic}${priority ? ` (${priority})` : ""}`;
const userLink = (name) => make("a", { href: `#/user/${encodeURIComponent(name)}` }, name);
const at = (user, ...rest) => ["/api/v1/access/users", user, ...rest].map((part, place) => (place === 1 || place === 3 ? encode(part) : part)).join("/");

function newUser(roles) {
  const form = orders("admin", "A new user", { onsubmit: (event) => {
    event.preventDefault();
    const { name, password, role } = values(form);
    change(null, "/api/v1/access/users", "POST", { name, ...(password && { password }), roles: role ? [role] : [] }, `The user ${name} is there.`);
  } },
  field("Name", { name: "name", required: true, autocomplete: "off" }),
  field("Password", { name: "password", type: "password", autocomplete: "new-password" }),
  make("label", {}, "Role", make("select", { name: "role" }, make("option", { value: "" }, "none"), roles.map(({ rolename }) => make("option", {}, rolename)))),
  make("button", {}, "Add the user"));
  return form;
}

export async function access(_, query) {
  const [{ sources }, found, { roles }, { groups }] = await Promise.all([call("/api/v1/access/sources"),
    call(`/api/v1/access/users?${new URLSearchParams({ limit: 100, ...Object.fromEntries(query) })}`), call("/api/v1/access/roles"), call("/api/v1/access/groups")]);
  const search = make("form", { class: "row", onsubmit: (event) => { event.preventDefault(); go("/access", values(search)); } },
    field("Part of a name", { name: "match", value: query.get("match") ?? "" }), make("button", {}, "Search"));
  const is_editable = sources.some((source) => source.editable);
  return [make("h1", {}, "Users and rules"), search,
    table("Users that this broker knows", [
      ["User", (one) => userLink(one.user), "long"],
      ["Source", (one) => KINDS[one.source]],
      ["State", (one) => (one.disabled ? "disabled" : "may log in")],
      ["Roles", (one) => names(one.roles, "rolename"), "long"],
      ["Groups", (one) => names(one.groups, "groupname"), "long"],
      ["Operator", (one) => one.operator],
    ], found.users, "There is no such user. Users of services, of directories and of tokens are not listed: the broker learns their names when they log in."),
    more("/access", query, found.cursor),
    is_editable ? make("h2", {}, "New user of dynamic security") : null,
    is_editable ? newUser(roles) : make("p", {}, "Users are changed where they come from: no listener has dynamic security."),
    make("h2", {}, "Roles"), table("Roles of dynamic security", [
      ["Role", (role) => role.rolename, "long"],
      ["Rules, the highest priority first", (role) => role.acls.map(rule).join("; "), "long"],
    ], roles, "There is no role of dynamic security."),
    make("h2", {}, "Groups"), table("Groups of dynamic security", [
      ["Group", (group) => group.groupname, "long"],
      ["Roles", (group) => names(group.roles, "rolename"), "long"],
      ["Members", (group) => names(group.clients, "username"), "long"],
    ], groups, "There is no group of dynamic security."),
    make("h2", {}, "Sources"), table("Sources of users and rules", [
      ["Kind", (source) => KINDS[source.kind]],
      ["Place", (source) => (["acl_file", "rules_file"].includes(source.kind)
        ? make("a", { href: `#/rules?${new URLSearchParams({ place: source.place })}` }, source.place) : source.place), "long"],
      ["Users", (source) => (source.users == null ? null : number(source.users)), "number"],
      ["Listeners", (source) => source.listeners.join(", "), "long"],
    ], sources, "No listener has users or rules: everybody may do everything.")];
}

function editor(one, roles) {
  const to = (...rest) => at(one.user, ...rest);
  const toggle = order("admin", { onclick: () => change(`${one.disabled ? "Enable" : "Disable"} ${one.user}?${one.disabled ? "" : " Its clients are disconnected."}`,
    to("enabled"), "PUT", { enabled: one.disabled }, `${one.user} is ${one.disabled ? "enabled" : "disabled"}.`) }, one.disabled ? "Enable" : "Disable");
  const end = order("admin", { class: "danger", onclick: () => change(`Delete ${one.user}? Its clients are disconnected.`, to(), "DELETE", undefined, `${one.user} is deleted.`) }, "Delete");
  const secret = orders("admin", "Another password", { onsubmit: (event) => {
    event.preventDefault();
    change(`Give ${one.user} another password? Its clients are disconnected.`, to("password"), "PUT", values(secret), `${one.user} has another password.`);
  } }, field("New password", { name: "password", type: "password", required: true, autocomplete: "new-password" }), make("button", {}, "Set the password"));
  const given = one.roles.map(({ rolename }) => rolename);
  const left = roles.filter(({ rolename }) => !given.includes(rolename));
  const grant = left.length && orders("admin", "Another role", { onsubmit: (event) => {
    event.preventDefault();
    const { role } = values(grant);
    change(null, to("roles", role), "PUT", undefined, `${one.user} has the role ${role}.`);
  } }, make("label", {}, "Role", make("select", { name: "role" }, left.map(({ rolename }) => make("option", {}, rolename)))),
  make("button", {}, "Give the role"));
  return [make("p", {}, toggle, " ", end), secret, grant || null, table("Roles of the user", [
    ["Role", (role) => names([role], "rolename"), "long"],
    ["Action", ({ rolename }) => order("admin", { "aria-label": `Take the role ${rolename}`, onclick: () => change(`Take the role ${rolename} from ${one.user}?`, to("roles", rolename), "DELETE", undefined, `${one.user} has the role ${rolename} no more.`) }, "Take")],
  ], one.roles, "The user has no role of its own.")];
}

export async function user([name]) {
  const [{ users }, { roles }] = await Promise.all([call(`/api/v1/access/users/${encode(name)}`), call("/api/v1/access/roles")]);
  return [make("h1", {}, `User ${name}`), ...users.flatMap((one) => [
    make("h2", {}, `Source: ${KINDS[one.source]}`), make("p", {}, one.place),
    one.operator ? make("p", {}, `The user is an operator with the role ${one.operator} (users of [admin]).`) : null,
    one.text ? make("p", {}, one.text) : null,
    one.groups.length ? make("p", {}, `Groups: ${names(one.groups, "groupname")}`) : null,
    ...(one.editable ? editor(one, roles) : [make("p", {}, "This source is changed where it comes from: pondhawk user add and remove change a password file.")]),
  ])];
}

export async function rules(_, query) {
  const found = await call(`/api/v1/access/rules?${new URLSearchParams({ place: query.get("place") ?? "" })}`);
  return [make("h1", {}, "Rules"), make("p", {}, `${found.place}, as it is on the disk. If the file has a mistake, the rules before it are in force, and the log says so.`),
    make("pre", { tabindex: "0", role: "region", "aria-label": "Rules" }, found.text)];
}
