import type { Action } from "../actions.ts";
import { apartShort } from "../numbers.ts";

export function Actions({ actions, since_ns }: { actions: Action[]; since_ns: number }) {
  const after = (at_ns: number) => (at_ns ? apartShort(at_ns, since_ns) : "–");
  return (
    <section class="actions" aria-labelledby="actions">
      <h3 id="actions">Commands and outcomes</h3>
      <div class="wide">
        <table>
          <thead>
            <tr>
              <th scope="col">Node</th>
              <th scope="col">What</th>
              <th scope="col">By whom</th>
              <th scope="col">Outcome</th>
              <th scope="col" class="number">
                Began
              </th>
              <th scope="col" class="number">
                Moved
              </th>
              <th scope="col" class="number">
                Confirmed
              </th>
            </tr>
          </thead>
          <tbody>
            {actions.map((action) => (
              <tr key={action.id}>
                <th scope="row">{action.node}</th>
                <td>{action.verb}</td>
                <td>{action.armed ? "by itself" : "commanded"}</td>
                <td>
                  {action.status === "already" ? "was so already" : action.status}
                  {action.reason && `: ${action.reason}`}
                </td>
                <td class="number">{after(action.began_ns)}</td>
                <td class="number">{after(action.moved_ns)}</td>
                <td class="number">
                  {action.expected > 0 &&
                    `${action.confirmed} of ${action.expected}${action.confirmed_ns > 0 ? ", " : ""}`}
                  {action.confirmed_ns > 0 && after(action.confirmed_ns)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
