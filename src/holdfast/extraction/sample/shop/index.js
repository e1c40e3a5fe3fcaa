const { exec } = require("child_process");
const settings = { user: "shop", password: "tr0ub4dor-and-3-horses" };

function search(request) {
  return eval(request.query.filter);
}

function invoice(request) {
  exec("make-invoice " + request.query.number);
}

module.exports = { invoice, search, settings };
