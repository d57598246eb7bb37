const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();
// Shows this gateway's document. Nothing in the address of the page chooses another one (queryConfigEnabled), nothing is
// sent to a validator elsewhere, and a token that is typed in is forgotten with the page.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  filter: true,
  displayRequestDuration: true,
  defaultModelsExpandDepth: 0,
  queryConfigEnabled: false,
  persistAuthorization: false,
  validatorUrl: null,
});
