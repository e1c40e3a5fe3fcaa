// A one-time login link carries its secret behind the #, which no server sees; it is taken out of the address at once.
const secret = location.hash.slice(1);
if (secret) {
  history.replaceState(null, "", location.pathname + location.search);
  const form = document.getElementById("login");
  form.elements.link.value = secret;
  form.submit();
}
