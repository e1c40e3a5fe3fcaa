// Before anything is painted: that scripts run here, and the theme that was chosen, if one was.
document.documentElement.dataset.scripts = "";
try {
  const theme = localStorage.getItem("holdfast-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // No storage: the system's choice it is.
}
